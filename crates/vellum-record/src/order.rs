//! The one order of everything: rings are emptied into it under a lock.
use crate::children;
use crate::ring::Ring;
use crate::sink::queue::Queue;
use crate::sink::{Message, RawCall};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Virtual CPUs at once; QEMU reuses the numbers of those that ended.
const MAX_VCPUS: usize = 1 << 15;

static RINGS: [AtomicPtr<Ring>; MAX_VCPUS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_VCPUS];
static OWNER: AtomicI32 = AtomicI32::new(0);
static ORDER: Mutex<Order> = Mutex::new(Order { to: None, live: Vec::new() });

/// What the lock guards: the way to the background thread and which CPUs are alive.
pub struct Order {
    to: Option<&'static Queue<Message>>,
    live: Vec<u32>,
}

/// This process records.
pub fn begin(to: &'static Queue<Message>) {
    // SAFETY: getpid has no preconditions.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    lock().to = Some(to);
}

/// Is this a forked child, or did recording never begin? Then nothing may be locked, sent or
/// written: the lock may have been held by a thread that does not exist here.
pub fn detached() -> bool {
    // SAFETY: getpid has no preconditions.
    OWNER.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

/// Takes the lock. Only for processes that are not [`detached`].
pub fn lock() -> MutexGuard<'static, Order> {
    match ORDER.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// The ring of a virtual CPU.
#[inline(always)]
pub fn ring(vcpu: u32) -> Option<&'static Ring> {
    let p = RINGS.get(vcpu as usize)?.load(Ordering::Acquire);
    // SAFETY: rings are leaked boxes, never freed; null is filtered by as_ref.
    unsafe { p.as_ref() }
}

/// Appends words to a CPU's ring, making room if needed.
///
/// # Safety
/// Only the CPU itself may call this.
#[inline(always)]
pub unsafe fn push<const N: usize>(vcpu: u32, words: [u64; N]) {
    let Some(r) = ring(vcpu) else { return };
    // SAFETY: passed on to our caller.
    if !unsafe { r.push(words) } {
        // SAFETY: passed on to our caller.
        unsafe { make_room(vcpu, r, words) };
    }
}

/// Empties a full ring and appends words to it. The last thing that a callback does, so that it has
/// nothing to save for it.
///
/// # Safety
/// Only the CPU itself may call this, with its ring.
#[cold]
#[inline(never)]
unsafe fn make_room<const N: usize>(vcpu: u32, ring: &Ring, words: [u64; N]) {
    if detached() {
        ring.discard();
    } else {
        lock().take(vcpu, ring);
    }
    // SAFETY: passed on to our caller; the ring has room now.
    unsafe { ring.push(words) };
}

impl Order {
    /// A message right behind the one before, whatever has been done since.
    pub fn send(&self, message: Message) {
        if let Some(to) = self.to {
            to.send(message);
        }
    }

    fn take(&self, vcpu: u32, ring: &Ring) {
        // SAFETY: self is only reachable through the order lock.
        let words = unsafe { ring.drain() };
        if !words.is_empty() {
            self.send(Message::Words { vcpu, words });
        }
    }

    /// Empties the rings of all CPUs.
    pub fn take_all(&self) {
        for vcpu in &self.live {
            if let Some(r) = ring(*vcpu) {
                self.take(*vcpu, r);
            }
        }
    }

    /// A CPU begins. Rings are kept and reused with the CPU's number.
    pub fn start(&mut self, vcpu: u32) {
        let Some(slot) = RINGS.get(vcpu as usize) else {
            return;
        };
        if self.live.contains(&vcpu) {
            self.end(vcpu);
        }
        if slot.load(Ordering::Acquire).is_null() {
            slot.store(Box::into_raw(Box::new(Ring::new())), Ordering::Release);
        }
        self.take_all();
        self.live.push(vcpu);
        self.send(Message::Start { vcpu });
    }

    /// A CPU ends.
    pub fn end(&mut self, vcpu: u32) {
        if self.live.contains(&vcpu) {
            self.take_all();
            self.live.retain(|v| *v != vcpu);
            self.send(Message::End { vcpu });
        }
    }

    /// A call, in front of which everything that has happened goes.
    pub fn call(&mut self, vcpu: u32, call: RawCall) {
        self.take_all();
        self.send(Message::Call { vcpu, call });
    }

    /// Any other message, in the same order.
    pub fn message(&mut self, message: Message) {
        self.take_all();
        self.send(message);
    }

    /// Tells which forked children have ended.
    pub fn ended_children(&mut self) {
        if children::are_there() {
            children::ended(|key| self.message(Message::ChildEnd(key)));
        }
    }

    /// Is the recording over?
    pub fn is_closed(&self) -> bool {
        self.to.is_none()
    }

    /// The recording is over: later events go nowhere.
    pub fn close(&mut self) {
        self.to = None;
    }
}
