//! Small scripts in every interleaving of few preemptions.

mod explorer;

mod found;
mod given;
mod moments;
mod objects;
mod poison;
mod rules;
mod scarce;
mod verbs;
