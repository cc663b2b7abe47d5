//! 100,000 requests to pagers that fail, answer short, late and out of order, as a seed has it.
//!
//! Each thread has a word of its own in every page, and numbers what it stores there. A look finds
//! no older store than one that was done before, and no word of another place: so no page is shown
//! that is read in part, and none that was dirty goes. What a `sync` says is written is on the
//! disk. Who is told that a page cannot be read is told of a failure that came meanwhile. Each
//! thread has a handle of its own of each file. A `sync` by it fails if a run of its own fails, or
//! if another's has failed since that handle was last told; and it is told of none twice.
//! `VELLUM_SEED` gives another seed. It is that of each thread's choices and of the disk's, not of
//! their order.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::scope;

use super::*;

const REQUESTS: u64 = 100_000;
const FILES: [u64; 2] = [FILE, FILE + 1];
const PAGES: u64 = 40;
const BYTES: u64 = PAGES * KIB4;
/// Pages behind these nobody writes: the disks have nothing there, and read short.
const WRITTEN: u64 = 32;
/// Threads that work: CPUs from 1 on. CPU 0 is the pagers'.
const WORKERS: usize = 3;

/// A word, by its file, its page, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Word {
    file: usize,
    page: u64,
    worker: usize,
}

impl Word {
    fn any(random: &mut Random, worker: usize) -> Word {
        Word { file: random.below(2) as usize, page: random.below(WRITTEN), worker }
    }
    fn number(self) -> usize {
        (self.file * PAGES as usize + self.page as usize) * WORKERS + self.worker
    }
    fn offset(self) -> u64 {
        // The first, one in the middle, and the last of the page.
        self.page * KIB4 + [0, 2040, KIB4 - 8][self.worker]
    }
    fn value(self, version: u64) -> u64 {
        (self.number() as u64 + 1) << 32 | version
    }
    /// The version of a value, 0 for zeros; none of another word.
    fn version(self, value: u64) -> Option<u64> {
        let is_own = value == 0 || value >> 32 == self.number() as u64 + 1;
        is_own.then_some(value & 0xffff_ffff)
    }
}

/// The stores of a word: the last one begun, and the last one done.
#[derive(Default)]
struct Stores {
    begun: AtomicU64,
    done: AtomicU64,
}

struct World {
    fx: Fixture,
    files: [Object; 2],
    /// Each maps both files, one behind the other; the last one as private views.
    spaces: Vec<Space>,
    stores: Vec<Stores>,
    /// Runs of each file that could not be written, by calls that are over.
    failed: [AtomicU64; 2],
}

/// A thread's own handles, and at least and at most how many failed runs they were told of.
struct Handles {
    cpu: usize,
    files: [Object; 2],
    told: [Range<u64>; 2],
}

/// What a thread saw.
#[derive(Default, Debug)]
struct Seen {
    stores: u64,
    looks: u64,
    failed: u64,
    syncs: u64,
    failed_syncs: u64,
    told_of_others: u64,
    evicted: u64,
    grabbed: u64,
}

impl World {
    fn new() -> World {
        let fx = fixture_of::<X86_64>(
            WORKERS + 1,
            4096,
            Config { file_readahead: 8, ..Config::default() },
        );
        let files = FILES.map(|file| fx.vm.objects().create_paged(BYTES, file).unwrap());
        let mut spaces: Vec<Space> = (0..2).map(|_| fx.vm.create().expect("memory")).collect();
        for space in &spaces {
            fx.map_object(space, AT, BYTES, &files[0]);
            fx.map_object(space, Va(AT.0 + BYTES), BYTES, &files[1]);
        }
        spaces.push(fx.vm.fork(&spaces[0]).expect("memory"));
        let view = fx.vm.create().expect("memory");
        fx.map_private(&view, AT, BYTES, &files[0]);
        fx.map_private(&view, Va(AT.0 + BYTES), BYTES, &files[1]);
        spaces.push(view);
        let words = FILES.len() * PAGES as usize * WORKERS;
        let stores = (0..words).map(|_| Stores::default()).collect();
        World { fx, files, spaces, stores, failed: Default::default() }
    }

    fn place(&self, word: Word) -> Va {
        Va(AT.0 + word.file as u64 * BYTES + word.offset())
    }

    fn store(&self, word: Word, random: &mut Random) -> bool {
        let stores = &self.stores[word.number()];
        let version = stores.begun.load(SeqCst) + 1;
        stores.begun.store(version, SeqCst);
        let bytes = word.value(version).to_le_bytes();
        let is_done = match random.below(4) {
            0 => match self.fx.vm.objects().write(&self.files[word.file], word.offset(), &bytes) {
                (8, Ok(())) => true,
                (0, Err(ObjectError::Io)) => false,
                other => panic!("{word:?}: {other:?}"),
            },
            space => {
                let space = &self.spaces[space as usize - 1];
                match self.fx.vm.copy_in(space, self.place(word), &bytes) {
                    Ok(()) => true,
                    Err(FaultError::Io) => false,
                    Err(other) => panic!("{word:?}: {other:?}"),
                }
            }
        };
        if is_done {
            stores.done.store(version, SeqCst);
        }
        is_done
    }

    /// Whether there was something to see.
    fn look(&self, word: Word, random: &mut Random) -> bool {
        let stores = &self.stores[word.number()];
        let least = stores.done.load(SeqCst);
        let mut bytes = [0xee; 8];
        let is_done = match random.below(5) {
            0 => {
                match self.fx.vm.objects().read(&self.files[word.file], word.offset(), &mut bytes) {
                    (8, Ok(())) => true,
                    (0, Err(ObjectError::Io)) => false,
                    other => panic!("{word:?}: {other:?}"),
                }
            }
            space => {
                let space = &self.spaces[space as usize - 1];
                match self.fx.vm.copy_out(space, self.place(word), &mut bytes) {
                    Ok(()) => true,
                    Err(FaultError::Io) => false,
                    Err(other) => panic!("{word:?}: {other:?}"),
                }
            }
        };
        if is_done {
            let versions = least..=stores.begun.load(SeqCst);
            let value = u64::from_le_bytes(bytes);
            let found = word.version(value);
            assert!(
                found.is_some_and(|found| versions.contains(&found)),
                "{word:?}: {value:x} is none of the versions {versions:?}"
            );
        }
        is_done
    }

    /// What the disk has of a word.
    fn on_disk(&self, word: Word) -> u64 {
        let block = self.fx.m().disk.block(FILES[word.file], word.page);
        let at = (word.offset() % KIB4) as usize;
        let value = u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        word.version(value).unwrap_or_else(|| panic!("{word:?} is {value:x} on the disk"))
    }

    /// Runs of a file that could not be written, those of calls under way included.
    fn failed_runs(&self, file: usize) -> u64 {
        let failed = self.fx.m().disk.told().failed_writes;
        failed.iter().map(|by_cpu| by_cpu[FILES[file] as usize % 2]).sum()
    }

    /// Whether all was written, and nothing failed since the handle was told last.
    fn sync(&self, by: &mut Handles, file: usize, pages: Range<u64>, seen: &mut Seen) {
        let own = |page| Word { file, page, worker: by.cpu - 1 };
        let failed = || self.fx.m().disk.told().failed_writes[by.cpu][FILES[file] as usize % 2];
        let (before, over) = (failed(), self.failed[file].load(SeqCst));
        let (at, bytes) = (pages.start * KIB4, (pages.end - pages.start) * KIB4);
        let done = self.fx.vm.objects().sync(&by.files[file], at, bytes);
        let fails = failed() - before;
        self.failed[file].fetch_add(fails, SeqCst);
        let (told, all) = (by.told[file].clone(), self.failed_runs(file));
        let must = fails != 0 || over > told.end;
        let may = fails != 0 || all > told.start;
        assert!(done.is_err() || !must, "{fails} of its own; {told:?} told, {over} were over");
        assert!(done.is_ok() || may, "told {told:?}, of {all} in all, and once more");
        assert!(matches!(done, Ok(()) | Err(ObjectError::Io)));
        // At some moment of the call it was told of all.
        by.told[file] = (over + fails).max(told.start)..all;
        for word in pages.filter(|_| done.is_ok()).map(own) {
            let last = self.stores[word.number()].done.load(SeqCst);
            assert!(self.on_disk(word) >= last, "{word:?}: store {last} is not on the disk");
        }
        seen.syncs += 1;
        seen.failed_syncs += u64::from(done.is_err());
        seen.told_of_others += u64::from(done.is_err() && fails == 0);
    }

    /// Has pages for itself: nobody stores to them meanwhile.
    fn grab(&self, file: usize, pages: &Range<u64>, random: &mut Random) -> u64 {
        let wait = [GrabWait::Never, GrabWait::Once, GrabWait::Always][random.below(3) as usize];
        let (at, wanted) = (pages.start * KIB4, (pages.end - pages.start) as usize);
        let grabbed = match self.fx.vm.objects().grab(&self.files[file], at, wanted, wait) {
            Ok(grabbed) => grabbed,
            Err(ObjectError::Io) => return 0,
            Err(ObjectError::Busy) if wait != GrabWait::Always => return 0,
            Err(other) => panic!("{other:?}"),
        };
        let count = grabbed.frames().len();
        assert!(grabbed.offset() == at && (1..=wanted).contains(&count));
        let all = || -> Vec<[u8; 4096]> {
            let mut pages = vec![[0; 4096]; count];
            for (&pfn, page) in grabbed.frames().iter().zip(&mut pages) {
                // SAFETY: nobody else has the frame.
                unsafe { self.fx.m().read(pfn, 0, page) };
            }
            pages
        };
        let before = all();
        (0..5).for_each(|_| std::thread::yield_now());
        assert!(before == all(), "a page changed while it was grabbed");
        // Behind `WRITTEN` the disks are to stay short.
        let written = random.one_in(2) && pages.end <= WRITTEN;
        self.fx.vm.objects().release(grabbed, written);
        count as u64
    }

    /// One thread, until the pagers were asked often enough.
    fn work(&self, cpu: usize, seed: u64) -> Seen {
        self.fx.run_on(cpu);
        let (mut random, mut seen) = (Random::new(seed * 16 + cpu as u64), Seen::default());
        let objects = self.fx.vm.objects();
        let files = self.files.each_ref().map(|file| objects.another(file));
        let mut by = Handles { cpu, files, told: [0..0, 0..0] };
        let disk = &self.fx.m().disk;
        while disk.told().asked < REQUESTS {
            let act = random.below(16);
            let mine = Word::any(&mut random, cpu - 1);
            let from = random.below(PAGES);
            let pages = from..PAGES.min(from + 1 + random.below(12));
            match act {
                0..=4 => {
                    let done = self.store(mine, &mut random);
                    (seen.stores, seen.failed) =
                        (seen.stores + u64::from(done), seen.failed + u64::from(!done));
                }
                // In order, so that pages are read ahead.
                5..=10 => {
                    for page in pages.take(if act < 9 { 1 } else { 12 }) {
                        let worker = random.below(WORKERS as u64) as usize;
                        let before = disk.told().reads_over;
                        let done = self.look(Word { page, worker, ..mine }, &mut random);
                        let is_told = disk.told().failed_pages > before;
                        assert!(done || is_told, "told of a failure, and there was none");
                        (seen.looks, seen.failed) =
                            (seen.looks + u64::from(done), seen.failed + u64::from(!done));
                    }
                }
                11..=12 => self.sync(&mut by, mine.file, pages, &mut seen),
                13 if random.one_in(4) => {
                    seen.grabbed += self.grab(mine.file, &pages, &mut random);
                }
                13 => {
                    let space = &self.spaces[random.below(4) as usize];
                    let start = Va(AT.0 + mine.file as u64 * BYTES + from * KIB4);
                    let bytes = (pages.end - from) * KIB4;
                    let done = self.fx.vm.advise(space, start, bytes, Advice::DontNeed);
                    assert_eq!(done, Ok(()));
                }
                _ => {
                    let (at, bytes) = (from * KIB4, (pages.end - from) * KIB4);
                    seen.evicted += self.fx.vm.objects().evict(&self.files[mine.file], at, bytes);
                }
            }
        }
        by.files.into_iter().for_each(|file| objects.discard(file));
        seen
    }
}

#[test]
fn a_hundred_thousand_requests_lose_no_page_and_show_none_in_part() {
    let seed = std::env::var("VELLUM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("VELLUM_SEED={seed}");
    let world = World::new();
    let disk = &world.fx.m().disk;
    disk.set_whims(Some(Whims::new(seed)));
    let seen = scope(|threads| {
        let work = |cpu| {
            let world = &world;
            threads.spawn(move || world.work(cpu, seed))
        };
        let workers: Vec<_> = (1..=WORKERS).map(work).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            if let Some((answer, fails)) = disk.one_waiting(world.fx.m()) {
                world.fx.vm.objects().answer(answer);
                if fails {
                    disk.has_told();
                }
            }
            std::thread::yield_now();
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let told = disk.told();
    disk.set_whims(None);
    println!("{told:?}\n{seen:?}");
    assert!(told.asked >= REQUESTS, "seed {seed}: {told:?}");
    assert!(told.failed_pages > REQUESTS / 100 && told.short > REQUESTS / 100, "{told:?}");
    assert!(told.failed_reads > told.failed_pages + REQUESTS / 1000, "{told:?}");
    assert!(told.failed_writes.iter().flatten().sum::<u64>() > REQUESTS / 100, "{told:?}");
    assert!(seen.iter().all(|seen| seen.told_of_others > 0 && seen.grabbed > 0), "{seen:?}");
    world.fx.check(&world.spaces.iter().collect::<Vec<_>>());
    for (n, file) in world.files.iter().enumerate() {
        // This handle has been told of nothing so far.
        let synced = [(); 2].map(|()| world.fx.vm.objects().sync(file, 0, u64::MAX));
        assert_eq!(synced, [Err(ObjectError::Io), Ok(())]);
        assert_eq!(world.fx.vm.objects().usage(file).dirty_pages, 0);
        let words = (0..PAGES).flat_map(|page| (0..WORKERS).map(move |worker| (page, worker)));
        for (page, worker) in words {
            let word = Word { file: n, page, worker };
            let last = world.stores[word.number()].done.load(SeqCst);
            assert_eq!(world.on_disk(word), last, "{word:?}, seed {seed}");
        }
    }
    let World { fx, files, spaces, .. } = world;
    files.into_iter().for_each(|file| fx.vm.objects().discard(file));
    fx.end(spaces);
    let left = [Counter::FilePages, Counter::DirtyPages, Counter::WritebackPages];
    assert_eq!(left.map(|gauge| fx.count(gauge)), [0; 3]);
}
