//! The atomics the library is compiled with here: core's outside of races, loom's in a race.
//!
//! A loom atomic is an object, not a word. The library makes atomics out of zeroed memory, casts
//! words to locks and moves what it has built, so an atomic is a plain word here, too. A race keeps
//! one loom object for each word it touches and finds it by the word's address. Outside of races a
//! fixture is built and checked at full speed.
//!
//! loom treats a sequentially consistent access as an acquire or a release. The library relies on
//! the total order, so such an access gets a fence: before it in one run of a model, behind it in
//! another ([`Fenced`]). Processors that have fences only execute these accesses in one of the two
//! ways, so code that is right in the memory model passes both. The first run finds code that needs
//! the access to order a later relaxed one, the second run code that needs it to order an earlier
//! relaxed one.
//!
//! `LOOM_WEAKEN=frame/block/lock.rs:56:21` makes the access, or fence, at that place of the library
//! relaxed; `LOOM_PLACES=1` prints the places that races met.
//!
//! Rejected: `cfg(loom)` in the library. Zeroed memory is no valid loom atomic, so every structure
//! that lies in such memory would need a second way to be made.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{Location, resume_unwind};
use std::sync::LazyLock;

use loom::sync::atomic as of_loom;
pub use loom::sync::atomic::Ordering;

/// What an object of loom's stands for: a word at an address, or contents under a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Narrow(usize),
    Wide(usize),
    Contents(u64),
}

enum Object {
    Narrow(of_loom::AtomicU32),
    Wide(of_loom::AtomicU64),
    Contents(loom::cell::UnsafeCell<()>),
}

/// A place of the library: file, line, column.
type Place = (&'static str, u32, u32);

/// The objects of a race, sorted by key.
struct Race(Vec<(Key, Object)>);

/// Where the fence of a sequentially consistent access is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fenced {
    Before,
    Behind,
}

thread_local! {
    static RACE: Cell<Option<&'static Race>> = const { Cell::new(None) };
    static FENCED: Cell<Fenced> = const { Cell::new(Fenced::Before) };
    /// What the races of this model touch, as far as that is known.
    static KNOWN: RefCell<BTreeSet<Key>> = const { RefCell::new(BTreeSet::new()) };
    /// Addresses that words of the fixture have.
    static FIXTURE: RefCell<Range<usize>> = const { RefCell::new(0..0) };
    /// Whether touches outside of races are noted in `KNOWN`.
    static LEARNS: Cell<bool> = const { Cell::new(false) };
    static PLACES: RefCell<BTreeSet<Place>> = const { RefCell::new(BTreeSet::new()) };
}

/// The panic of a race that touched something not in `KNOWN`. loom wants its objects made before
/// threads start, so the model begins anew with one object more.
pub struct Unknown;

/// Begins a model whose words lie in that range of addresses.
pub fn forget(fixture: Range<usize>) {
    RACE.set(None);
    KNOWN.with_borrow_mut(BTreeSet::clear);
    FIXTURE.set(fixture);
}

/// Notes, or no longer notes, what is touched outside of races.
pub fn learn(on: bool) {
    LEARNS.set(on);
}

pub fn set_fenced(fenced: Fenced) {
    FENCED.set(fenced);
}

pub fn races() -> bool {
    RACE.get().is_some()
}

/// Begins a race: makes an object of everything known, with its present value.
pub fn begin() {
    // SAFETY: an address is that of a word of this fixture, which has not moved.
    let object = |key: Key| unsafe {
        match key {
            Key::Narrow(at) => Object::Narrow(of_loom::AtomicU32::new(*(at as *const u32))),
            Key::Wide(at) => Object::Wide(of_loom::AtomicU64::new(*(at as *const u64))),
            Key::Contents(_) => Object::Contents(loom::cell::UnsafeCell::new(())),
        }
    };
    let objects = KNOWN.with_borrow(|known| known.iter().map(|&key| (key, object(key))).collect());
    RACE.set(Some(Box::leak(Box::new(Race(objects)))));
}

/// Ends a race, whose threads are over.
pub fn end() {
    if let Some(race) = RACE.take() {
        // SAFETY: leaked by `begin`; nobody finds it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(race).cast_mut()) });
    }
}

fn know(key: Key) {
    if let Key::Narrow(at) | Key::Wide(at) = key {
        let inside = FIXTURE.with_borrow(|fixture| fixture.contains(&at));
        assert!(inside, "an atomic outside of the fixture's memory");
    }
    KNOWN.with_borrow_mut(|known| known.insert(key));
}

/// The object of a key, in a race.
fn object(key: Key) -> Option<&'static Object> {
    let Some(race) = RACE.get() else {
        if LEARNS.get() {
            know(key);
        }
        return None;
    };
    // loom does not schedule a thread that unwinds.
    if std::thread::panicking() {
        return None;
    }
    match race.0.binary_search_by_key(&key, |found| found.0) {
        Ok(at) => Some(&race.0[at].1),
        Err(_) => {
            know(key);
            RACE.set(None);
            resume_unwind(Box::new(Unknown));
        }
    }
}

/// Reads or writes contents under a number, a frame's for example. loom stops at the first access
/// that is not ordered with one of another thread, if either writes.
pub fn contents(number: u64, write: bool) {
    if let Some(Object::Contents(cell)) = object(Key::Contents(number)) {
        if write { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
    }
}

/// The place to weaken: the end of a file's path, a line, a column.
static WEAKENED: LazyLock<Option<(String, u32, u32)>> = LazyLock::new(|| {
    let place = std::env::var("LOOM_WEAKEN").ok()?;
    let mut parts = place.rsplitn(3, ':');
    let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((parts.next()?.to_owned(), line, column))
});

/// The order an access asks for, or relaxed if its place is to be weakened.
#[track_caller]
fn asked(order: Ordering) -> Ordering {
    if order == Ordering::Relaxed {
        return order;
    }
    let place = Location::caller();
    PLACES.with_borrow_mut(|places| places.insert((place.file(), place.line(), place.column())));
    match &*WEAKENED {
        Some((file, line, column))
            if (place.line(), place.column()) == (*line, *column)
                && place.file().ends_with(file) =>
        {
            Ordering::Relaxed
        }
        _ => order,
    }
}

/// Prints the places where races met an order above relaxed, if `LOOM_PLACES` is set.
pub fn tell_places() {
    let places = PLACES.take();
    if std::env::var_os("LOOM_PLACES").is_some() {
        for (file, line, column) in places {
            println!("ordered at {file}:{line}:{column}");
        }
    }
}

/// As core's.
#[track_caller]
pub fn fence(order: Ordering) {
    if races() && !std::thread::panicking() && asked(order) != Ordering::Relaxed {
        of_loom::fence(order);
    }
}

/// As in `vellum::sync::atomic`, where an exchange alone is no full fence.
#[track_caller]
pub fn fence_after_exchange() {
    fence(Ordering::SeqCst);
}

/// An access of that order, with the fence that stands for sequential consistency.
fn fenced<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    let fence_if = |fenced| {
        if order == Ordering::SeqCst && FENCED.get() == fenced {
            of_loom::fence(Ordering::SeqCst);
        }
    };
    fence_if(Fenced::Before);
    let result = access();
    fence_if(Fenced::Behind);
    result
}

macro_rules! atomic {
    ($name:ident, $int:ty, $kind:ident, $loom:ty) => {
        /// As core's. In a race the word follows its object, so a thread that unwinds finds it as
        /// it left it.
        #[repr(transparent)]
        pub struct $name(UnsafeCell<$int>);

        // SAFETY: loom runs one thread at a time and switches between threads in its own calls
        // only.
        unsafe impl Sync for $name {}

        #[allow(dead_code)]
        impl $name {
            pub const fn new(value: $int) -> $name {
                $name(UnsafeCell::new(value))
            }
            fn object(&self) -> Option<&'static $loom> {
                match object(Key::$kind(self.0.get() as usize)) {
                    Some(Object::$kind(word)) => Some(word),
                    _ => None,
                }
            }
            fn get(&self) -> $int {
                // SAFETY: one thread runs at a time, see `Sync`.
                unsafe { *self.0.get() }
            }
            fn set(&self, value: $int) {
                // SAFETY: one thread runs at a time, see `Sync`.
                unsafe { *self.0.get() = value }
            }
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $int {
                match self.object() {
                    Some(word) => {
                        let order = asked(order);
                        fenced(order, || word.load(order)) as $int
                    }
                    None => self.get(),
                }
            }
            #[track_caller]
            pub fn store(&self, value: $int, order: Ordering) {
                if let Some(word) = self.object() {
                    let order = asked(order);
                    fenced(order, || word.store(value as _, order));
                }
                self.set(value);
            }
            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $int,
                new: $int,
                yes: Ordering,
                no: Ordering,
            ) -> Result<$int, $int> {
                let found = match self.object() {
                    Some(word) => {
                        let (yes, no) = (asked(yes), asked(no));
                        match fenced(yes, || word.compare_exchange(old as _, new as _, yes, no)) {
                            Ok(found) | Err(found) => found as $int,
                        }
                    }
                    None => self.get(),
                };
                if found != old {
                    return Err(found);
                }
                self.set(new);
                Ok(found)
            }
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                old: $int,
                new: $int,
                yes: Ordering,
                no: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(old, new, yes, no)
            }
            atomic!(@change $int, swap, |old, value| value);
            atomic!(@change $int, fetch_add, |old, value| old.wrapping_add(value));
            atomic!(@change $int, fetch_max, |old, value| old.max(value));
            atomic!(@change $int, fetch_sub, |old, value| old.wrapping_sub(value));
            atomic!(@change $int, fetch_and, |old, value| old & value);
            atomic!(@change $int, fetch_or, |old, value| old | value);
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                self.get().fmt(f)
            }
        }
    };
    (@change $int:ty, $change:ident, |$old:ident, $value:ident| $new:expr) => {
        #[track_caller]
        pub fn $change(&self, $value: $int, order: Ordering) -> $int {
            let $old = match self.object() {
                Some(word) => {
                    let order = asked(order);
                    fenced(order, || word.$change($value as _, order)) as $int
                }
                None => self.get(),
            };
            self.set($new);
            $old
        }
    };
}

atomic!(AtomicU32, u32, Narrow, of_loom::AtomicU32);
atomic!(AtomicU64, u64, Wide, of_loom::AtomicU64);
atomic!(AtomicI64, i64, Wide, of_loom::AtomicU64);
