//! Graphs of interacting labels.

use crate::error::{Error, Result};

/// Pairs of labels that interact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    n_labels: usize,
    edges: Vec<[u32; 2]>,
    /// If the graph has no cycle: its labels, parents before children, with the edges to their parents.
    forest: Option<Vec<ForestNode>>,
}

/// A label of a forest and the edge to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::structured) struct ForestNode {
    pub label: u32,
    pub parent: Option<Link>,
}

/// The edge from a label to its parent: the parent, the index of the edge, and whether the parent is the first end of
/// the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::structured) struct Link {
    pub label: u32,
    pub edge: u32,
    pub first: bool,
}

type GraphConstructor = fn(labels: &[u8], n_labels: usize) -> Graph;

impl Graph {
    /// The named graphs, each built from the label matrix of the rows and the number of labels.
    pub const REGISTRY: &[(&str, GraphConstructor)] =
        &[("full", |_, n| Self::full(n)), ("tree", Self::chow_liu)];

    /// Creates a graph of `n_labels` labels from its edges.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `edges` if a pair joins a label with itself, occurs twice, or
    /// names a label that does not exist.
    pub fn new(n_labels: usize, edges: &[[u32; 2]]) -> Result<Self> {
        let fail = |message: String| Err(Error::argument("edges", message));
        let mut sorted: Vec<[u32; 2]> = Vec::with_capacity(edges.len());
        for &[a, b] in edges {
            if a == b || a.max(b) as usize >= n_labels {
                return fail(format!("({a}, {b}) must join two different labels below {n_labels}"));
            }
            sorted.push([a.min(b), a.max(b)]);
        }
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let [a, b] = pair[0];
            return fail(format!("the pair ({a}, {b}) occurs twice"));
        }
        Ok(Self { n_labels, edges: edges.to_vec(), forest: forest(n_labels, edges) })
    }

    /// Creates the graph that joins all pairs of labels.
    pub fn full(n_labels: usize) -> Self {
        let edges = pairs(n_labels);
        let forest = forest(n_labels, &edges);
        Self { n_labels, edges, forest }
    }

    /// Creates the spanning tree with the largest total mutual information between labels in the
    /// rows of a 0/1 matrix (Chow and Liu 1968). Among all trees, it best describes how the labels
    /// occur together.
    pub fn chow_liu(labels: &[u8], n_labels: usize) -> Self {
        let pairs = pairs(n_labels);
        let n_rows = labels.len() / n_labels.max(1);
        let information = |&[a, b]: &[u32; 2]| {
            let mut counts = [[0usize; 2]; 2];
            for row in labels.chunks_exact(n_labels) {
                counts[usize::from(row[a as usize] != 0)][usize::from(row[b as usize] != 0)] += 1;
            }
            mutual_information(counts, n_rows)
        };
        let mut best: Vec<_> = pairs.iter().map(|pair| (information(pair), *pair)).collect();
        best.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Kruskal's algorithm: keeps a pair if it joins two components.
        let mut component: Vec<usize> = (0..n_labels).collect();
        best.retain(|(_, pair)| {
            let [a, b] = pair.map(|label| component[label as usize]);
            if a != b {
                component.iter_mut().filter(|of| **of == b).for_each(|of| *of = a);
            }
            a != b
        });
        let mut edges: Vec<_> = best.into_iter().map(|(_, pair)| pair).collect();
        edges.sort_unstable();
        let forest = forest(n_labels, &edges);
        Self { n_labels, edges, forest }
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.n_labels
    }

    /// Returns the pairs of labels that interact.
    pub fn edges(&self) -> &[[u32; 2]] {
        &self.edges
    }

    /// Returns the labels with parents before children, or None if the graph has a cycle.
    pub(super) fn forest(&self) -> Option<&[ForestNode]> {
        self.forest.as_deref()
    }
}

/// Returns all pairs of labels.
fn pairs(n_labels: usize) -> Vec<[u32; 2]> {
    let n = n_labels as u32;
    (0..n).flat_map(|a| (a + 1..n).map(move |b| [a, b])).collect()
}

/// Returns the mutual information Σ p(s, t) ln (p(s, t) / (p(s) p(t))) of two binary variables, from their counts.
fn mutual_information(counts: [[usize; 2]; 2], n_rows: usize) -> f64 {
    let term = |(s, t): (usize, usize)| {
        let count = counts[s][t] as f64;
        let margins = (counts[s][0] + counts[s][1]) * (counts[0][t] + counts[1][t]);
        let ratio = count * n_rows as f64 / margins as f64;
        if count > 0.0 { count * ratio.ln() } else { 0.0 }
    };
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(term).iter().sum::<f64>() / n_rows as f64
}

/// Returns all labels with their parents, or `None` if the graph has a cycle.
fn forest(n_labels: usize, edges: &[[u32; 2]]) -> Option<Vec<ForestNode>> {
    let mut neighbours = vec![Vec::new(); n_labels];
    for (edge, &[a, b]) in (0..).zip(edges) {
        neighbours[a as usize].push(Link { label: b, edge, first: false });
        neighbours[b as usize].push(Link { label: a, edge, first: true });
    }
    let mut seen = vec![false; n_labels];
    let mut order: Vec<ForestNode> = Vec::with_capacity(n_labels);
    for root in 0..n_labels {
        if seen[root] {
            continue;
        }
        seen[root] = true;
        let mut at = order.len();
        order.push(ForestNode { label: root as u32, parent: None });
        while let Some(&ForestNode { label, parent }) = order.get(at) {
            for &Link { label: child, edge, first: child_first } in &neighbours[label as usize] {
                if parent.is_some_and(|parent| parent.edge == edge) {
                    continue;
                }
                if std::mem::replace(&mut seen[child as usize], true) {
                    return None;
                }
                let parent = Some(Link { label, edge, first: !child_first });
                order.push(ForestNode { label: child, parent });
            }
            at += 1;
        }
    }
    Some(order)
}
