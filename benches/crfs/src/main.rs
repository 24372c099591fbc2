//! Trains a model of the crate crfs (`pa`, 20 passes) and tags the test sentences.
//!
//! `crfs-benchmark TRAIN TEST MODEL LABELS`: in the two files of sentences each line has a label
//! and the features of a token, separated by tabs; an empty line ends a sentence. Writes the
//! predicted labels, one per line, and prints the seconds of training, the seconds of tagging
//! (median of five), and the growth of the peak memory in MB, as JSON.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crfs::train::Trainer;
use crfs::{Attribute, Model};

type Sentence = (Vec<Vec<Attribute>>, Vec<String>);

fn read(path: &str) -> Vec<Sentence> {
    let text = fs::read_to_string(path).expect("a file of sentences");
    let sentence = |block: &str| {
        let token = |line: &str| {
            let mut columns = line.split('\t');
            let label = columns.next().unwrap_or_default().to_owned();
            (columns.map(|name| Attribute::new(name, 1.0)).collect(), label)
        };
        block.lines().map(token).unzip()
    };
    text.split("\n\n").filter(|block| !block.is_empty()).map(sentence).collect()
}

/// The largest memory of this process so far, in MB.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let number = line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    number.unwrap_or(f64::NAN) / 1024.0
}

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [train, test, model_path, labels_path] = &paths[..] else { panic!("four paths") };
    let (train, test) = (read(train), read(test));
    let before = peak();
    let start = Instant::now();
    let trainer = Trainer::passive_aggressive().with_max_iterations(20);
    let mut trainer = trainer.expect("a number of passes");
    for (tokens, labels) in &train {
        trainer.append(tokens, labels).expect("a sentence");
    }
    trainer.train(Path::new(model_path)).expect("a model");
    let (seconds, grown) = (start.elapsed().as_secs_f64(), peak() - before);
    let bytes = fs::read(model_path).expect("the model");
    let model = Model::new(&bytes).expect("the model");
    let tagger = model.tagger().expect("a tagger");
    let (mut times, mut found) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let start = Instant::now();
        found = test.iter().map(|(tokens, _)| tagger.tag(tokens).expect("labels")).collect();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    fs::write(labels_path, found.concat().join("\n")).expect("the labels");
    println!("{{\"seconds\": {seconds}, \"tag_seconds\": {}, \"peak_mb\": {grown}}}", times[2]);
}
