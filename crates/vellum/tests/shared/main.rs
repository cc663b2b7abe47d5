//! Objects that spaces map: what one writes the others see, and what each verb does there.

mod around;
mod blocks;
mod bytes;
mod cursor;
mod device;
mod kernel;
mod lines;
mod mappings;
mod oom;
mod private;
mod resize;
mod seals;
mod sparse;
mod verbs;
