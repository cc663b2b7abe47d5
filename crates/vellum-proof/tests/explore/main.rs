//! Small scripts in every interleaving of few preemptions.

mod explorer;

mod found;
mod rules;
mod scarce;
mod verbs;
