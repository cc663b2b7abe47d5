//! Loads, stores and the kernel's copies.

use vellum::addr::Va;
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::Access;

use super::{On, Worker};
use crate::stress::owned_pages::{OwnedPages, Run, SAMPLES};

/// A range that the kernel copies to or from.
struct Span {
    va: Va,
    bytes: u64,
    /// What the copy has to say.
    wanted: Result<(), FaultError>,
}

impl<C: Codec> Worker<'_, C> {
    pub(super) fn some_page(&mut self, owned: &OwnedPages) -> u64 {
        if self.rng.once_in(12) {
            let run = owned.part(&mut self.rng);
            return run.first;
        }
        owned.mapped(&mut self.rng).unwrap_or(owned.runs[0].first)
    }

    pub(super) fn touch(&mut self, mut on: On<'_>, access: Access) {
        let page = self.some_page(on.owned);
        let sample = self.rng.below(3) as usize;
        self.check_access(&mut on, page, sample, access, 0);
    }

    pub(super) fn write(&mut self, mut on: On<'_>) {
        let first = self.some_page(on.owned);
        // Now and then a run of pages, as programs write.
        let n = if self.rng.once_in(8) { 24 } else { 1 };
        for page in first..first + n {
            let one = Run { first: page, pages: 1 };
            if page != first && !on.owned.pages.contains_key(&page) {
                return;
            }
            // The others look at the first word only.
            let sample = self.rng.below(4).saturating_sub(1) as usize;
            let stamp = on.owned.stamp();
            on.begin(&[one]);
            let done = self.check_access(&mut on, page, sample, Access::Write, stamp);
            if done {
                on.owned.each(one, |p| p.words[sample] = stamp);
            }
            on.settled(&[one]);
            if !done {
                return;
            }
        }
    }

    /// A range of whole words on up to six mapped pages of equal verdict, or one page of any kind.
    fn span(&mut self, owned: &OwnedPages, access: Access) -> Span {
        let first = self.some_page(owned);
        let verdict = |p: u64| Self::verdict(owned.pages.get(&p).map(|p| p.rights), access);
        let mut pages = 1;
        if verdict(first).is_ok() {
            let wish = 1 + self.rng.below(6);
            while pages < wish && verdict(first + pages).is_ok() {
                pages += 1;
            }
        }
        let start = (first << 12) + self.rng.below(512) * 8;
        let room = ((first + pages) << 12) - start;
        let bytes = 8 * (1 + self.rng.below(room / 8));
        // After a refused first page it is unspecified what was copied, so such a span stays
        // inside it.
        Span { va: Va(start), bytes, wanted: verdict(first) }
    }

    /// The kernel writes, `forced` whatever the rights, as long as there are any.
    pub(super) fn copy_in(&mut self, mut on: On<'_>, forced: bool) {
        let Span { va, bytes, wanted } =
            self.span(on.owned, if forced { Access::Read } else { Access::Write });
        let run = Run { first: va.page(), pages: ((va.0 + bytes - 1) >> 12) - va.page() + 1 };
        on.begin(&[run]);
        let stamp = on.owned.stamp();
        let buffer: Vec<u8> = stamp.to_ne_bytes().repeat(bytes as usize / 8);
        let vm = self.shared.vm;
        let done = if forced {
            vm.write_forced(on.space, va, &buffer)
        } else {
            vm.copy_in(on.space, va, &buffer)
        };
        match (done, wanted) {
            (Ok(()), Ok(())) => {
                for page in run.numbers() {
                    for (i, at) in SAMPLES.into_iter().enumerate() {
                        let at = (page << 12) + at;
                        if va.0 <= at && at < va.0 + bytes {
                            on.owned.each(Run { first: page, pages: 1 }, |p| p.words[i] = stamp);
                        }
                    }
                }
            }
            (Err(FaultError::NoMemory), _) => {
                self.outcome.refused += 1;
                self.relearn(&mut on, va, bytes, stamp);
            }
            (Err(e), Err(w)) if e == w => {}
            (got, wanted) => {
                panic!(
                    "copy_in, forced {forced}, at {va:?} of {bytes} gave {got:?}, wanted \
                     {wanted:?}; {}",
                    self.place(&on)
                )
            }
        }
        on.settled(&[run]);
    }

    /// A copy that ran out of memory has written some prefix: find which samples it reached.
    pub(super) fn relearn(&mut self, on: &mut On<'_>, va: Va, bytes: u64, stamp: u64) {
        for page in va.page()..=(va.0 + bytes - 1) >> 12 {
            for (i, at) in SAMPLES.into_iter().enumerate() {
                let at = Va((page << 12) + at);
                if va <= at
                    && at.0 < va.0 + bytes
                    && self.access(on.space, at, Access::Read, 0) == Ok(stamp)
                {
                    on.owned.each(Run { first: page, pages: 1 }, |p| p.words[i] = stamp);
                }
            }
        }
    }

    pub(super) fn copy_out(&mut self, on: On<'_>) {
        let Span { va, bytes, wanted } = self.span(on.owned, Access::Read);
        let mut buffer = vec![0xaa; bytes as usize];
        match (self.shared.vm.copy_out(on.space, va, &mut buffer), wanted) {
            (Ok(()), Ok(())) => {
                for (i, word) in buffer.chunks_exact(8).enumerate() {
                    let at = Va(va.0 + 8 * i as u64);
                    let mut whole = [0; 8];
                    whole.copy_from_slice(word);
                    let word = u64::from_ne_bytes(whole);
                    let known = on.owned.pages.get(&at.page()).map_or([0; 3], |p| p.words);
                    match SAMPLES.iter().position(|&s| s == at.offset() as u64) {
                        Some(i) => self.same(&on, at, word, known[i]),
                        None => self.sane(on.space, at, word, on.owned.lineage, on.owned.owner),
                    }
                }
            }
            (Err(FaultError::NoMemory), _) => self.outcome.refused += 1,
            (Err(e), Err(w)) if e == w => {}
            (got, wanted) => {
                panic!(
                    "copy_out at {va:?} of {bytes} gave {got:?}, wanted {wanted:?}; {}",
                    self.place(&on)
                )
            }
        }
    }
}
