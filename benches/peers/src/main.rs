//! Fits one of four support vector machines to rows in a text file.
//!
//! peers PROGRAM C FILE
//!
//! The first line of the file has the numbers of rows for training and for testing; each other line
//! has a label and the features of a row. Prints the test accuracy and the seconds of the fit.

use std::error::Error;
use std::time::Instant;

use dualgap::prelude::*;
use libsvm_rs::{KernelType, SvmNode, SvmParameter, SvmProblem, SvmType};
use linfa::composing::MultiClassModel;
use linfa::dataset::Pr;
use linfa::prelude::{Dataset, Fit, Predict};
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::svm::Kernels;
use smartcore::svm::svc::{MultiClassSVC, SVCParameters};

type Answer<T> = std::result::Result<T, Box<dyn Error>>;

/// Rows with labels.
struct Rows {
    values: Vec<f64>,
    labels: Vec<i32>,
    width: usize,
}

impl Rows {
    fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Answer<Self> {
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            labels.push(words.next().ok_or("a row without a label")?.parse()?);
            for word in words {
                values.push(word.parse()?);
            }
        }
        let width = values.len() / labels.len().max(1);
        Ok(Self { values, labels, width })
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.width)
    }

    fn accuracy(&self, predicted: &[i32]) -> f64 {
        let right = predicted.iter().zip(&self.labels).filter(|(a, b)| a == b).count();
        right as f64 / self.labels.len() as f64
    }
}

fn dualgap(c: f64, train: &Rows, test: &Rows) -> Answer<(Vec<i32>, f64)> {
    let rows = Dense::from_slice(&train.values, train.width)?;
    let start = Instant::now();
    let model = MulticlassSvc::new().c(c).fit(rows, &train.labels)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((model.predict(Dense::from_slice(&test.values, test.width)?)?, seconds))
}

fn libsvm(c: f64, train: &Rows, test: &Rows) -> Answer<(Vec<i32>, f64)> {
    let nodes = |row: &[f64]| -> Vec<SvmNode> {
        let entries = (1..).zip(row).filter(|(_, value)| **value != 0.0);
        entries.map(|(index, value)| SvmNode { index, value: *value }).collect()
    };
    libsvm_rs::set_quiet(true);
    let problem = SvmProblem {
        labels: train.labels.iter().map(|label| f64::from(*label)).collect(),
        instances: train.rows().map(nodes).collect(),
    };
    let options = SvmParameter {
        svm_type: SvmType::CSvc,
        kernel_type: KernelType::Linear,
        c,
        ..Default::default()
    };
    let start = Instant::now();
    let model = libsvm_rs::train::svm_train(&problem, &options);
    let seconds = start.elapsed().as_secs_f64();
    let predict = |row| libsvm_rs::predict::predict(&model, &nodes(row)) as i32;
    Ok((test.rows().map(predict).collect(), seconds))
}

fn linfa(c: f64, train: &Rows, test: &Rows) -> Answer<(Vec<i32>, f64)> {
    use linfa::dataset::Records;
    let matrix = |rows: &Rows| {
        linfa_array(rows.labels.len(), rows.width, &rows.values)
    };
    let labels: Vec<usize> = train.labels.iter().map(|label| *label as usize).collect();
    let data = Dataset::new(matrix(train)?, labels.into());
    let options = linfa_svm::Svm::<f64, Pr>::params().linear_kernel().pos_neg_weights(c, c);
    let start = Instant::now();
    let mut models = Vec::new();
    for (label, own) in data.one_vs_all()? {
        models.push((label, options.fit(&own)?));
    }
    let model = models.into_iter().collect::<MultiClassModel<_, _>>();
    let seconds = start.elapsed().as_secs_f64();
    let others = matrix(test)?;
    debug_assert_eq!(others.nsamples(), test.labels.len());
    Ok((model.predict(&others).iter().map(|label| *label as i32).collect(), seconds))
}

/// A matrix of the version of ndarray that linfa uses.
fn linfa_array(
    n_rows: usize,
    n_columns: usize,
    values: &[f64],
) -> Answer<ndarray::Array2<f64>> {
    Ok(ndarray::Array2::from_shape_vec((n_rows, n_columns), values.to_vec())?)
}

fn smartcore(c: f64, train: &Rows, test: &Rows) -> Answer<(Vec<i32>, f64)> {
    let matrix = |rows: &Rows| -> Answer<DenseMatrix<f64>> {
        let rows: Vec<Vec<f64>> = rows.rows().map(<[f64]>::to_vec).collect();
        DenseMatrix::from_2d_vec(&rows).map_err(|error| error.to_string().into())
    };
    let (rows, others) = (matrix(train)?, matrix(test)?);
    let options = SVCParameters::default().with_c(c).with_kernel(Kernels::linear()).with_seed(Some(0));
    let start = Instant::now();
    let model = MultiClassSVC::fit(&rows, &train.labels, &options).map_err(|error| error.to_string())?;
    let seconds = start.elapsed().as_secs_f64();
    let predicted: Vec<f64> = model.predict(&others).map_err(|error| error.to_string())?;
    Ok((predicted.into_iter().map(|label| label as i32).collect(), seconds))
}

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, c, path] = &arguments[..] else { return Err("peers PROGRAM C FILE".into()) };
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let head = lines.next().ok_or("an empty file")?;
    let n_train: usize = head.split(' ').next().unwrap_or_default().parse()?;
    let train = Rows::parse(lines.by_ref().take(n_train))?;
    let test = Rows::parse(lines)?;
    let fit = match program.as_str() {
        "dualgap" => dualgap,
        "libsvm-rs" => libsvm,
        "linfa-svm" => linfa,
        "smartcore" => smartcore,
        _ => return Err(format!("unknown program {program}").into()),
    };
    let (predicted, seconds) = fit(c.parse()?, &train, &test)?;
    println!("{} {seconds}", test.accuracy(&predicted));
    Ok(())
}
