//! What does not compile. Each rule has a twin that keeps it and compiles, so that the other fails
//! for the rule and for nothing else.
//!
//! Giving a frame back is a promise:
//! ```
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, pfn: vellum::addr::Pfn) {
//! unsafe { vm.frames().free(vm.machine(), pfn, vellum::addr::Order::BASE) };
//! # }
//! ```
//! ```compile_fail,E0133
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, pfn: vellum::addr::Pfn) {
//! vm.frames().free(vm.machine(), pfn, vellum::addr::Order::BASE);
//! # }
//! ```
//! So is clearing one:
//! ```
//! # use vellum::unstable::Extent;
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, extent: &Extent) {
//! // SAFETY: the caller's alone, by the promise that `f` would make.
//! _ = unsafe { vm.clear_extent(extent) };
//! # }
//! ```
//! ```compile_fail,E0133
//! # use vellum::unstable::Extent;
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, extent: &Extent) {
//! _ = vm.clear_extent(extent);
//! # }
//! ```
//! And an audit, which must be alone:
//! ```
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>) {
//! // SAFETY: nobody else is at work, by the promise that `f` would make.
//! _ = unsafe { vm.validate(&[]) };
//! # }
//! ```
//! ```compile_fail,E0133
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>) {
//! _ = vm.validate(&[]);
//! # }
//! ```
//! Page tables are written by promise:
//! ```
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, table: vellum::addr::Pfn) {
//! # use vellum::machine::Machine;
//! unsafe { vm.machine().entry_store(table, 0, 0) };
//! # }
//! ```
//! ```compile_fail,E0133
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, table: vellum::addr::Pfn) {
//! # use vellum::machine::Machine;
//! vm.machine().entry_store(table, 0, 0);
//! # }
//! ```
//! So is a frame's use reported: the machine may write to what is free.
//! ```
//! # use vellum::{addr::Order, machine::{Hooks, Machine, Use}};
//! # fn f<M: Machine>(vm: &vellum::vm::Vm<M>, pfn: vellum::addr::Pfn) {
//! unsafe { vm.machine().frame(pfn, Order::BASE, Use::Free) };
//! # }
//! ```
//! ```compile_fail,E0133
//! # use vellum::{addr::Order, machine::{Hooks, Machine, Use}};
//! # fn f<M: Machine>(vm: &vellum::vm::Vm<M>, pfn: vellum::addr::Pfn) {
//! vm.machine().frame(pfn, Order::BASE, Use::Free);
//! # }
//! ```
//! What the library itself does with a machine is not to be had:
//! ```compile_fail,E0603
//! # fn f<M: vellum::machine::Machine>(m: &M) {
//! # use vellum::machine::Act;
//! # }
//! ```
//! A frame's record is read, and written by the library alone:
//! ```
//! # fn f(record: &vellum::unstable::Record) {
//! _ = record.words()[1];
//! # }
//! ```
//! ```compile_fail,E0624
//! # fn f(record: &vellum::unstable::Record) {
//! record.word(1).store(0, core::sync::atomic::Ordering::Relaxed);
//! # }
//! ```
//! Frames are reserved while nobody else has the value:
//! ```
//! # fn f<M: vellum::machine::Machine>(vm: &mut vellum::vm::Vm<M>) {
//! _ = vm.reserve(vellum::addr::Pfn(1), 1);
//! # }
//! ```
//! ```compile_fail,E0596
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>) {
//! _ = vm.reserve(vellum::addr::Pfn(1), 1);
//! # }
//! ```
//! A space ends once, and is one:
//! ```
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, space: vellum::space::Space) {
//! vm.activate(&space);
//! vm.exit(space);
//! # }
//! ```
//! ```compile_fail,E0382
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, space: vellum::space::Space) {
//! vm.exit(space);
//! vm.activate(&space);
//! # }
//! ```
//! ```compile_fail,E0599
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, space: vellum::space::Space) {
//! vm.exit(space.clone());
//! vm.exit(space);
//! # }
//! ```
//! Whoever implements the machine promises its contract:
//! ```
//! # use vellum::addr::*; use vellum::machine::*;
//! # struct Mine;
//! # impl Hooks for Mine {}
//! unsafe impl Machine for Mine {
#![doc = include_str!("misuse_machine.txt")]
//! }
//! ```
//! ```compile_fail,E0200
//! # use vellum::addr::*; use vellum::machine::*;
//! # struct Mine;
//! # impl Hooks for Mine {}
//! impl Machine for Mine {
#![doc = include_str!("misuse_machine.txt")]
//! }
//! ```
//! A cursor is used while the guard of its trie is held:
//! ```
//! # use vellum::unstable::{Token, Trie};
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, trie: &Trie) {
//! let mut top = Token::top();
//! let mut guard = vm.tries().lock(trie, &mut top);
//! let mut cursor = guard.cursor();
//! cursor.lookup(1);
//! drop(cursor);
//! drop(guard);
//! # }
//! ```
//! ```compile_fail,E0505
//! # use vellum::unstable::{Token, Trie};
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, trie: &Trie) {
//! let mut top = Token::top();
//! let mut guard = vm.tries().lock(trie, &mut top);
//! let mut cursor = guard.cursor();
//! drop(guard);
//! cursor.lookup(1);
//! # }
//! ```
//! There is one at a time, so that no other way into the trie changes it meanwhile:
//! ```compile_fail,E0499
//! # use vellum::unstable::{Token, Trie};
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, trie: &Trie) {
//! let mut top = Token::top();
//! let mut guard = vm.tries().lock(trie, &mut top);
//! let (mut one, mut other) = (guard.cursor(), guard.cursor());
//! one.lookup(1);
//! other.lookup(1);
//! # }
//! ```
//! What may drop the guard consumes the cursor:
//! ```compile_fail,E0382
//! # use vellum::unstable::{Token, Trie};
//! # fn f<M: vellum::machine::Machine>(vm: &vellum::vm::Vm<M>, trie: &Trie) {
//! let mut top = Token::top();
//! let mut guard = vm.tries().lock(trie, &mut top);
//! let mut cursor = guard.cursor();
//! let token = cursor.into_token();
//! cursor.lookup(1);
//! # }
//! ```
