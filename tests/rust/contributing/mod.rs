//! The example loss of CONTRIBUTING.md: one file and one line of the registry. Every test of the
//! registry's losses also tests the example.

use dualgap::polytope::{LossConstructor, Polytope, Scratch};

mod mean_hinge;

use mean_hinge::MeanHinge;

/// The registry line of the example.
pub const REGISTRY: &[(&str, LossConstructor)] =
    &[("mean-hinge", LossConstructor::Plain(|| Box::new(MeanHinge)))];

#[test]
fn contributing_shows_the_code_that_is_tested() {
    let text = include_str!("../../../CONTRIBUTING.md");
    let blocks: Vec<_> =
        text.split("```rust\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    let [file, line] = blocks[..] else { panic!("{} blocks of Rust", blocks.len()) };
    assert_eq!(file, include_str!("mean_hinge.rs"));
    let line = line.trim().trim_end_matches(',');
    assert!(line.starts_with("(\"mean-hinge\""));
    assert!(include_str!("mod.rs").contains(line), "{line}");
}
