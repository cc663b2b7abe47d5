//! The verbs on objects.

use crate::error::ObjectError;
use crate::machine::Machine;
use crate::object::Object;
use crate::ops::object::bytes::ObjectBytes;
use crate::ops::object::resize::Resize;
use crate::space::ObjectUsage;
use crate::vm::Vm;

/// The objects of a `Vm`: see [`Vm::objects`].
///
/// An object is a run of bytes that several spaces may map, each anywhere, by
/// [`Vm::map_object`]. Its pages are made when they are first touched and read as zeros until
/// then. They are the object's: an unmap, an exit or `Advice::DontNeed` takes them out of a space
/// and no more, and a fork shares them.
pub struct Objects<'v, M: Machine>(&'v Vm<M>);

impl<M: Machine> Clone for Objects<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Objects<'_, M> {}

impl<M: Machine> Vm<M> {
    /// The verbs on objects.
    pub fn objects(&self) -> Objects<'_, M> {
        Objects(self)
    }
}

impl<M: Machine> Objects<'_, M> {
    /// An object of so many bytes, all zero. It has no pages yet.
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::NoMemory`].
    pub fn create(self, bytes: u64) -> Result<Object, ObjectError> {
        self.0.layers.create_object(bytes)
    }

    /// Gives the handle back. The object goes now, or with its last mapping. The caller holds no
    /// lock.
    ///
    /// # Panics
    /// If the object is another `Vm`'s, as all verbs here.
    pub fn discard(self, object: Object) {
        self.0.layers.discard(object);
    }

    /// Size and pages.
    pub fn usage(self, object: &Object) -> ObjectUsage {
        self.0.layers.object_usage(object)
    }

    /// Reads bytes from `offset` on; says how many there were before the object's end. What has no
    /// page reads as zeros and gets none.
    pub fn read(self, object: &Object, offset: u64, bytes: &mut [u8]) -> usize {
        ObjectBytes(&self.0.layers).read(object, offset, bytes)
    }

    /// Writes bytes from `offset` on. Pages that are missing are made.
    ///
    /// # Errors
    /// [`ObjectError::Beyond`]: they reach past the object's end.
    /// [`ObjectError::NoMemory`]. What comes before that is written; the number says how much.
    pub fn write(
        self,
        object: &Object,
        offset: u64,
        bytes: &[u8],
    ) -> (usize, Result<(), ObjectError>) {
        ObjectBytes(&self.0.layers).write(object, offset, bytes)
    }

    /// Makes the object longer or shorter. Pages past the new end are freed, and a program that
    /// touches them through a mapping gets [`FaultError::Beyond`](crate::FaultError::Beyond). What
    /// is added reads as zeros. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::Size`]; nothing changed.
    pub fn resize(self, object: &Object, bytes: u64) -> Result<(), ObjectError> {
        Resize(&self.0.layers).resize(object, bytes)
    }

    /// Makes so many bytes from `offset` on zero, and frees the pages that lie among them as a
    /// whole. Past the end there is nothing to do. The caller holds no lock.
    pub fn punch(self, object: &Object, offset: u64, bytes: u64) {
        Resize(&self.0.layers).punch(object, offset, bytes);
    }
}
