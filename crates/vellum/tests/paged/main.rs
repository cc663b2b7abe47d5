//! Objects whose contents a pager has: what is read, when, and what reaches the pager.

mod ahead;
mod around;
mod blocks;
mod cuts;
mod grabs;
mod harvests;
mod late;
mod oom;
mod outcomes;
mod reads;
mod threads;
mod verbs;
mod whims;
mod writes;

use vellum_testkit::prelude::*;

/// The pager's number.
const FILE: u64 = 77;

/// An object of so many bytes whose page `n` begins with the word `n + 1` on the disk, and a space
/// that maps it at `AT`, and 64 pages more.
struct Paged<C: Arch = X86_64> {
    fx: Fixture<C>,
    object: Object,
    space: Space,
}

/// Nothing is read ahead.
fn paged<C: Arch>(bytes: u64) -> Paged<C> {
    paged_ahead(bytes, 1)
}

fn paged_ahead<C: Arch>(bytes: u64, file_readahead: u64) -> Paged<C> {
    paged_with(bytes, Config { file_readahead, ..Config::default() })
}

fn paged_with<C: Arch>(bytes: u64, config: Config) -> Paged<C> {
    let fx = fixture_of::<C>(4, 4096, config);
    let pages = bytes.div_ceil(KIB4);
    (0..pages + 2).for_each(|n| fx.m().disk.put(FILE, n, n + 1));
    let object = fx.vm.objects().create_paged(bytes, FILE).unwrap();
    let space = fx.with_object(AT, (pages + 64) * KIB4, &object);
    Paged { fx, object, space }
}

impl<C: Arch> Paged<C> {
    fn disk(&self) -> &Disk {
        &self.fx.m().disk
    }

    /// The pages that were read or written since the last time, each as the disk was asked.
    fn calls(&self, writes: bool) -> Vec<(u64, u64)> {
        let of = |call: DiskCall| (call.writes == writes).then_some((call.page, call.bytes));
        self.disk().calls().into_iter().filter_map(of).collect()
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.fx.vm.objects().sync(&self.object, 0, u64::MAX)
    }

    fn evict(&self) -> u64 {
        self.fx.vm.objects().evict(&self.object, 0, u64::MAX)
    }

    fn dirty(&self) -> u64 {
        self.fx.vm.objects().usage(&self.object).dirty_pages
    }

    fn word(&self, page: u64) -> Result<u64, ObjectError> {
        let mut bytes = [0; 8];
        let (_, done) = self.fx.vm.objects().read(&self.object, page * KIB4, &mut bytes);
        done.map(|()| u64::from_le_bytes(bytes))
    }

    fn peek(&self, page: u64) -> Result<u64, FaultError> {
        self.fx.peek(&self.space, page_at(page))
    }

    fn poke(&self, page: u64, word: u64) -> Result<(), FaultError> {
        self.fx.poke(&self.space, page_at(page), word)
    }

    fn end(self, others: impl IntoIterator<Item = Space>) {
        self.fx.vm.objects().discard(self.object);
        self.fx.end(others.into_iter().chain([self.space]));
        let gauges = [
            Counter::FilePages,
            Counter::DirtyPages,
            Counter::WritebackPages,
            Counter::ShmemPages,
            Counter::AnonPages,
            Counter::Mapped,
        ];
        assert_eq!(gauges.map(|gauge| self.fx.count(gauge)), [0; 6]);
    }
}
