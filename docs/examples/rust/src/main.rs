// SPDX-License-Identifier: Apache-2.0
//! Reads the digits on images of 8 x 8 numbers from 0 to 16, given on standard input.
mod onnxc;

use onnxc::{Context, Table, Tensor};
use std::io::{stdin, Read};

extern "C" {
    fn digits_model() -> *const Table;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f32>, _>>()?;
    let mut context = unsafe { Context::new(digits_model, 1) }?;
    let shape = [numbers.len() as i64 / 64, 8, 8];
    let outputs = context.run(&[&Tensor::new(&numbers, &shape)])?;
    let probabilities = outputs[0].elements::<f32>().ok_or("the model gives floats")?;
    assert_eq!(outputs[0].shape(), [shape[0], 10]);
    for row in probabilities.chunks(10) {
        let best = (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
        println!("{best}");
    }
    let wrong = context.run(&[]).err().ok_or("a run without inputs")?;
    eprintln!("status {}: {wrong}", wrong.status);
    Ok(())
}
