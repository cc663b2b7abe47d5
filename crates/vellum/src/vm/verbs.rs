//! The verbs on spaces.
//!
//! A space belongs to the `Vm` that made it. Another `Vm` panics when it is given the space, unless
//! the call ends before it looks at it: refused for its other arguments, or with no bytes to copy.

use crate::addr::Va;
use crate::error::{FaultError, Invalid, NoMemory, PoisonError, SpaceError};
use crate::fault::Serve;
use crate::machine::Machine;
use crate::object::ObjectPart;
use crate::ops::advise::Advise;
use crate::ops::copy::CopyBytes;
use crate::ops::forbid_zeros::ForbidZeros;
use crate::ops::inspect::query::Query;
use crate::ops::inspect::usage::CountUsage;
use crate::ops::inspect::validate::Validate;
use crate::ops::map::Map;
use crate::ops::poison::Poison;
use crate::ops::protect::Protect;
use crate::ops::remap::Remap;
use crate::ops::spaces::create::Create;
use crate::ops::spaces::exit::Exit;
use crate::ops::spaces::fork::Fork;
use crate::ops::unmap::Unmap;
use crate::ops::write_forced::WriteForced;
use crate::space::{Access, Advice, Attrs, Audit, Fault, Page, Placement, Rights, Space, Usage};
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// A space with nothing in it. Takes no lock of another space.
    ///
    /// # Errors
    /// [`NoMemory`], also where there are [`MAX_SPACES`](crate::space::MAX_SPACES) spaces; nothing
    /// changed.
    #[inline]
    pub fn create(&self) -> Result<Space, NoMemory> {
        Create(&self.layers).create()
    }

    /// A copy of `space`: the same regions, and the contents of all its memory at one instant of
    /// the call, private to each side from then on. When it returns no CPU can write to a shared
    /// page. Takes the space's mmap lock; faults of the space that change an entry wait
    /// meanwhile.
    ///
    /// # Errors
    /// [`NoMemory`], also where there are [`MAX_SPACES`](crate::space::MAX_SPACES) spaces; there is
    /// no child, and nothing changed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn fork(&self, space: &Space) -> Result<Space, NoMemory> {
        Fork(&self.layers).fork(space)
    }

    /// Gives everything of a space back. If this CPU runs in it, it leaves it first, as by
    /// [`deactivate`](Vm::deactivate); other CPUs must have left or be about to: the call waits for
    /// them. So this CPU may not run a space meanwhile that one of them ends: two CPUs that each
    /// run the space which the other one ends wait for ever. The shared zeros are no space's: the
    /// huge page of zeros stays until [`shrink_zeros`](Vm::shrink_zeros).
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn exit(&self, space: Space) {
        Exit(&self.layers).exit(space)
    }

    /// Runs in `space` on this CPU from here: loads its root. Cheap if it is loaded already. To be
    /// called by a scheduler, outside of every other call of the library on this CPU but
    /// [`Machine::sched_point`].
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn activate(&self, space: &Space) {
        self.layers.activate(space)
    }

    /// Runs in no space on this CPU from here. Where translations are not kept apart by asid the
    /// CPU drops all of the user half, and is out of the reach of later flushes.
    #[inline]
    pub fn deactivate(&self) {
        self.layers.deactivate()
    }

    /// Maps `bytes` bytes of private zero memory and says where. No page is made before it is
    /// touched. Takes the mmap lock.
    ///
    /// # Errors
    /// [`SpaceError::Range`], also for what begins below 64 KiB; [`SpaceError::LeafSize`],
    /// [`SpaceError::Occupied`] for [`Placement::At`], [`SpaceError::NoHole`] for
    /// [`Placement::Anywhere`], [`SpaceError::NoMemory`]. Nothing changed, not even what was to be
    /// replaced.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn map(
        &self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
    ) -> Result<Va, SpaceError> {
        Map(&self.layers).map(space, at, bytes, attrs)
    }

    /// Maps `bytes` bytes of an object and says where. Every space that maps a page of it sees what
    /// the others write. The range may reach past the object's end: whoever touches it there gets
    /// [`FaultError::Beyond`] until the object is that long. Pages are of 4 KiB, whatever the
    /// switch `thp` says. Takes the mmap lock.
    ///
    /// # Errors
    /// As [`map`](Vm::map); [`SpaceError::Part`] for the part of the object;
    /// [`SpaceError::LeafSize`] for leaves of more than 4 KiB; [`SpaceError::Rights`] for the right
    /// to write where the contents are sealed, or for what a device does not give;
    /// [`SpaceError::Kernel`] for memory of the kernel's own.
    ///
    /// # Panics
    /// If `space` or the object is another `Vm`'s.
    pub fn map_object(
        &self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
        part: ObjectPart<'_>,
    ) -> Result<Va, SpaceError> {
        Map(&self.layers).map_object(space, at, bytes, attrs, part)
    }

    /// Maps `bytes` bytes of an object, privately, and says where. The mapping shows the object's
    /// pages until the program writes: then it gets a copy of the page, which nobody else sees and
    /// which no change of the object reaches any more, not even one of its size. Otherwise as
    /// [`map_object`](Vm::map_object).
    ///
    /// # Errors
    /// As [`map_object`](Vm::map_object), but seals forbid nothing here; [`SpaceError::Device`] for
    /// a device.
    ///
    /// # Panics
    /// If `space` or the object is another `Vm`'s.
    pub fn map_private(
        &self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
        part: ObjectPart<'_>,
    ) -> Result<Va, SpaceError> {
        Map(&self.layers).map_private(space, at, bytes, attrs, part)
    }

    /// Unmaps `bytes` bytes at `start`, holes in them included. When it returns no CPU can reach
    /// the pages through this space. Waits for CPUs that must drop translations, and for readers if
    /// table nodes go; takes the space's mmap lock.
    ///
    /// # Errors
    /// [`SpaceError::Range`]. [`SpaceError::NoMemory`] only if the range ends inside a large leaf
    /// or a reserved entry above 4 KiB, which takes a table node to split. Nothing was unmapped.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn unmap(&self, space: &Space, start: Va, bytes: u64) -> Result<(), SpaceError> {
        Unmap(&self.layers).unmap(space, start, bytes)
    }

    /// Gives every page of the range the rights `rights`. When it returns no CPU can use a right
    /// that was taken. Takes the mmap lock.
    ///
    /// # Errors
    /// [`SpaceError::Range`], [`SpaceError::Unmapped`] if part of the range lies in no region,
    /// [`SpaceError::NoMemory`], [`SpaceError::Rights`] if part of it shows sealed contents that
    /// would be written, or a device that does not give the right. Nothing changed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn protect(
        &self,
        space: &Space,
        start: Va,
        bytes: u64,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        Protect(&self.layers).protect(space, start, bytes, rights)
    }

    /// Makes the mapping of `old_bytes` bytes at `old` one of `new_bytes`, and says where it is.
    /// [`Placement::At`]`(old)` keeps it in place or refuses; [`Placement::Anywhere`] keeps it in
    /// place if it can and moves it otherwise; `At` or `Replace` with another address move it
    /// there. What is longer is of the last page's region; what is shorter unmaps the tail. Takes
    /// the mmap lock.
    ///
    /// # Errors
    /// [`SpaceError::Range`] for either range, and for a new one below 64 KiB;
    /// [`SpaceError::Unmapped`] if part of the old one lies in no region; [`SpaceError::Occupied`]
    /// if there is something where it should go or grow and it is not to be replaced, or if the two
    /// ranges overlap; [`SpaceError::LeafSize`], [`SpaceError::NoHole`], [`SpaceError::NoMemory`].
    /// Nothing changed, not even what was to be replaced or cut off as a tail.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn remap(
        &self,
        space: &Space,
        old: Va,
        old_bytes: u64,
        new_bytes: u64,
        to: Placement,
    ) -> Result<Va, SpaceError> {
        Remap(&self.layers).remap(space, old, old_bytes, new_bytes, to)
    }

    /// Follows a piece of advice about a range. All but `Populate` take the mmap lock; `Collapse`
    /// takes it anew for each huge page.
    ///
    /// # Errors
    /// [`SpaceError::Range`], [`SpaceError::Unmapped`] if part of the range lies in no region,
    /// [`SpaceError::NoMemory`]; nothing changed.
    /// [`SpaceError::Rights`]: `Populate` wants an access that a region does not give.
    /// [`SpaceError::Stopped`]: `Populate` broke off between two portions, or `Collapse` did not
    /// wait for a pager, because the task is to end. [`SpaceError::Io`]: a pager could not read
    /// what `Populate` or `Collapse` wants. [`SpaceError::Beyond`]: `Populate` came past the end of
    /// a mapped object.
    /// `Populate` goes page by page and `Collapse` huge page by huge page: they keep what they did
    /// before one failed, nothing changed at that one or above it, and
    /// [`advise_part`](Vm::advise_part) says where it is.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn advise(
        &self,
        space: &Space,
        start: Va,
        bytes: u64,
        advice: Advice,
    ) -> Result<(), SpaceError> {
        self.advise_part(space, start, bytes, advice).1
    }

    /// As [`advise`](Vm::advise); says for how many bytes of the range, from its start, the advice
    /// was followed: all of them unless it failed, and none if one of those failed that do all or
    /// nothing.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn advise_part(
        &self,
        space: &Space,
        start: Va,
        bytes: u64,
        advice: Advice,
    ) -> (u64, Result<(), SpaceError>) {
        Advise(&self.layers).advise_part(space, start, bytes, advice)
    }

    /// Serves a fault of a program in `space` at `va`. On return the access may be tried again, and
    /// will get on. Waits for nobody but other changes of the same entry, for CPUs that must drop a
    /// translation when a shared page is replaced, for a fork of the space that is under way, and,
    /// before it finds that there is no memory, for calls under way on other CPUs that may give
    /// some back; for a page of an object also for who has it in hand, and for its pager. Takes the
    /// mmap lock before it refuses an access, and after 16 attempts that others undid. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// [`FaultError`]; nothing changed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn fault(&self, space: &Space, va: Va, access: Access) -> Result<Fault, FaultError> {
        Serve(&self.layers).fault(space, va, access)
    }

    /// Takes the frame behind `va` out of use for good; every space that maps it goes on with a
    /// copy of its 4096 bytes in another frame. Of a large leaf, which is split, it is the one page
    /// that goes. Takes the mmap lock of `space` and its family's lock; waits for CPUs that must
    /// drop the translation, and for copies of the page, and forks, protects and remaps of it in
    /// other spaces of the family, to end. No CPU writes to the frame, or reads it, when the verb
    /// returns.
    ///
    /// # Errors
    /// [`PoisonError`]; nothing changed that a program can tell. A large leaf may have been split
    /// where another thread copied it meanwhile, and zeros are counted (`poison_skipped_zero`).
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn poison(&self, space: &Space, va: Va) -> Result<(), PoisonError> {
        Poison(&self.layers).poison(space, va)
    }

    /// Forbids shared zeros in a space, for good: when it returns none are mapped there, on no
    /// CPU's TLB either, and none will be. Takes the mmap lock; waits for faults that are under
    /// way in the entries it changes.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn forbid_zeros(&self, space: &Space) {
        ForbidZeros(&self.layers).forbid_zeros(space)
    }

    /// Writes `bytes` at `to` in `space`.
    ///
    /// # Errors
    /// [`FaultError`], where a program's store would get it. Whole pages below that address have
    /// been written; nothing changed at the page that failed or above it.
    /// [`copy_in_part`](Vm::copy_in_part) says how many bytes that were.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn copy_in(&self, space: &Space, to: Va, bytes: &[u8]) -> Result<(), FaultError> {
        self.copy_in_part(space, to, bytes).1
    }

    /// As [`copy_in`](Vm::copy_in); says how many bytes were written, which are all of them unless
    /// it failed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn copy_in_part(
        &self,
        space: &Space,
        to: Va,
        bytes: &[u8],
    ) -> (usize, Result<(), FaultError>) {
        CopyBytes(&self.layers).copy_in_part(space, to, bytes)
    }

    /// Reads `bytes` at `from` in `space`.
    ///
    /// # Errors
    /// [`FaultError`], where a program's load would get it. The bytes below that address have been
    /// read, and their pages are present as if the program had read them; nothing changed at the
    /// page that failed or above it. [`copy_out_part`](Vm::copy_out_part) says how many bytes that
    /// were.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn copy_out(&self, space: &Space, from: Va, bytes: &mut [u8]) -> Result<(), FaultError> {
        self.copy_out_part(space, from, bytes).1
    }

    /// As [`copy_out`](Vm::copy_out); says how many bytes were read, which are all of them unless
    /// it failed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn copy_out_part(
        &self,
        space: &Space,
        from: Va,
        bytes: &mut [u8],
    ) -> (usize, Result<(), FaultError>) {
        CopyBytes(&self.layers).copy_out_part(space, from, bytes)
    }

    /// Writes `bytes` at `to` in `space`, to pages the program may only read as well. Shared pages
    /// are copied first; rights and other spaces' contents stay what they are.
    ///
    /// # Errors
    /// [`FaultError::Unmapped`]; [`FaultError::Rights`] for regions that give no access at all, and
    /// for those that show an object to others, too, and do not give the right to write;
    /// [`FaultError::NoMemory`]; where an object is shown as a program's store, but for the rights.
    /// Whole pages below that address have been written; nothing changed
    /// at the page that failed or above it. [`write_forced_part`](Vm::write_forced_part) says how
    /// many bytes that were.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn write_forced(&self, space: &Space, to: Va, bytes: &[u8]) -> Result<(), FaultError> {
        self.write_forced_part(space, to, bytes).1
    }

    /// As [`write_forced`](Vm::write_forced); says how many bytes were written, which are all of
    /// them unless it failed.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn write_forced_part(
        &self,
        space: &Space,
        to: Va,
        bytes: &[u8],
    ) -> (usize, Result<(), FaultError>) {
        WriteForced(&self.layers).write_forced_part(space, to, bytes)
    }

    /// What lies at `va`, at some instant of the call. Takes the mmap lock, which has no shared
    /// mode: a query waits for verbs that change the space, and they for it. Waits while a fault
    /// has the entry in transit.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s and `va` lies below [`user_end`](Vm::user_end).
    #[inline]
    pub fn query(&self, space: &Space, va: Va) -> Page {
        Query(&self.layers).query(space, va)
    }

    /// Walks the whole table and counts. Takes the mmap lock, as [`query`](Vm::query), for as
    /// long as the walk takes; pages that faults bring in meanwhile may be counted or not.
    ///
    /// # Panics
    /// If `space` is another `Vm`'s.
    #[inline]
    pub fn usage(&self, space: &Space) -> Usage {
        CountUsage(&self.layers).usage(space)
    }

    /// Recounts everything that is kept of `spaces` and of the frames. If they are all the spaces
    /// there are, map counts and references to regions must agree exactly; otherwise none may be
    /// too low.
    ///
    /// # Errors
    /// The first sentence that does not hold.
    ///
    /// # Panics
    /// If one of `spaces` is another `Vm`'s.
    ///
    /// # Safety
    /// No other call on this `Vm` runs meanwhile, on any CPU: tables are walked without locks, and
    /// frames looked for by clearing their bits. Programs may run.
    #[inline]
    pub unsafe fn validate(&self, spaces: &[&Space]) -> Result<Audit, Invalid> {
        // SAFETY: the caller promises the same.
        unsafe { Validate(&self.layers).validate(spaces) }
    }
}
