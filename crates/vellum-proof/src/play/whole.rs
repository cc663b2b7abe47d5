//! What is done to whole spaces, and to frames.

use vellum::addr::{Order, Va};
use vellum::entry::Codec;
use vellum::error::{NoMemory, PoisonError};
use vellum::machine::{Machine, Use};
use vellum::space::{Page, Space};
use vellum::unstable::AllocRequest;

use super::{Play, Side};
use crate::command::{CPUS, PageSpot, SIDES};
use crate::model::Pages;

/// Blocks of frames held at once, at most.
const BLOCKS: usize = 8;

impl<C: Codec> Play<'_, C> {
    pub(super) fn add_side(&mut self, space: Space, pages: Pages, strays: Vec<(u64, u64)>) {
        self.made += 1;
        self.sides.push(Side { space, pages, strays, name: self.made });
    }

    /// A page keeps what it holds; that it does the next looks tell.
    pub(super) fn poison(&mut self, n: usize, spot: PageSpot) {
        let page = self.near(n, spot, true);
        let cell = self.sides[n].pages.get(page);
        let there = cell.is_some();
        let of_object = cell.is_some_and(|cell| cell.page.shows().is_some());
        let seen = self.vm.query(&self.sides[n].space, Va(page << 12));
        let present = matches!(seen, Page::Mapped { .. });
        match self.vm.poison(&self.sides[n].space, Va(page << 12)) {
            Err(error) if of_object && !present => assert_eq!(error, PoisonError::NotMapped),
            Ok(()) if of_object => {
                assert!(present, "a frame behind page {page:#x}, where there is none, was poisoned")
            }
            Ok(()) => assert!(
                there,
                "a frame behind page {page:#x}, where nothing is mapped, was poisoned"
            ),
            Err(PoisonError::NoMemory) => self.no_memory(),
            Err(error) => assert!(!of_object, "poison of an object's page gave {error:?}"),
        }
    }

    pub(super) fn fork(&mut self, n: usize) {
        if self.sides.len() == SIDES {
            return;
        }
        let parent = &self.sides[n];
        match self.vm.fork(&parent.space) {
            Err(NoMemory) => self.no_memory(),
            Ok(child) => {
                let (pages, strays) = (parent.pages.clone(), parent.strays.clone());
                self.add_side(child, pages, strays);
            }
        }
    }

    /// CPUs that run the space leave it first, as a kernel would see to.
    pub(super) fn exit(&mut self, n: usize, fresh: bool) {
        if self.sides.len() == 1 && !fresh {
            return;
        }
        if self.sides.len() == 1 {
            match self.vm.create() {
                Err(NoMemory) => return self.no_memory(),
                Ok(space) => self.add_side(space, Pages::default(), Vec::new()),
            }
        }
        let side = self.sides.swap_remove(n);
        let here = self.vm.machine().cpu();
        for cpu in 0..CPUS {
            if self.runs[cpu] == Some(side.name) {
                self.runs[cpu] = None;
                // The CPU that calls may be in it.
                if cpu != here {
                    self.vm.machine().run_on(cpu);
                    self.vm.deactivate();
                }
            }
        }
        self.vm.machine().run_on(here);
        self.vm.exit(side.space);
    }

    pub(super) fn switch(&mut self, cpu: usize, to: Option<usize>) {
        match to {
            Some(n) => self.vm.activate(&self.sides[n].space),
            None => self.vm.deactivate(),
        }
        self.runs[cpu] = to.map(|n| self.sides[n].name);
    }

    pub(super) fn take(&mut self, order: Order) {
        if self.blocks.len() == BLOCKS {
            return self.give(0);
        }
        match self.vm.frames().alloc(self.vm.machine(), order, &AllocRequest::kernel(Use::Slab)) {
            Ok(first) => self.blocks.push((first, order)),
            // Memory in plenty may lie in pieces.
            Err(NoMemory) if order > Order::BASE => self.outcome.refused += 1,
            Err(NoMemory) => self.no_memory(),
        }
    }

    pub(super) fn give(&mut self, which: usize) {
        if !self.blocks.is_empty() {
            let (first, order) = self.blocks.swap_remove(which % self.blocks.len());
            // SAFETY: taken by `take`, and mapped nowhere.
            unsafe { self.vm.frames().free(self.vm.machine(), first, order) };
        }
    }
}
