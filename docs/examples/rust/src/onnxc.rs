// SPDX-License-Identifier: Apache-2.0
//! A safe wrapper of onnxc.h for models of tensors: contexts and outputs free themselves, errors are values, and
//! the borrow checker holds what C can only document.
use std::{ffi::CStr, fmt, marker::PhantomData, os::raw::c_char, os::raw::c_void, ptr, slice};

const ABI_MAJOR: u16 = 1;
const TENSOR: i32 = 1;

#[repr(C)]
struct Value {
    struct_size: u32,
    kind: i32,
    dtype: i32,
    rank: i32,
    dims: *const i64,
    data: *mut c_void,
    bytes: u64,
    capacity: u64,
    object: *mut c_void,
}

#[repr(C)]
struct Options {
    struct_size: u32,
    threads: i32,
    pool: *mut c_void,
    weights_path: *const c_char,
    target: *const c_char,
}

/// The table `onnxc_model`, as far as this file reads it: structs of the interface only ever grow.
#[repr(C)]
pub struct Table {
    struct_size: u32,
    abi_major: u16,
    abi_minor: u16,
    name: *const c_char,
    version: *const c_char,
    description: *const c_char,
    input_count: i32,
    output_count: i32,
    inputs: *const c_void,
    outputs: *const c_void,
    metadata: *const c_void,
    metadata_count: i32,
    feature_count: i32,
    features: *const c_void,
    weights_bytes: u64,
    workspace_bytes: i64,
    create: extern "C" fn(*const Options, *mut *mut c_void) -> i32,
    destroy: extern "C" fn(*mut c_void) -> i32,
    run: extern "C" fn(*mut c_void, *const Value, i32, *mut Value, i32) -> i32,
    release: extern "C" fn(*mut Value),
    workspace_bytes_for: extern "C" fn(*mut c_void, *const Value, i32, *mut usize) -> i32,
    set_workspace: extern "C" fn(*mut c_void, *mut c_void, usize) -> i32,
    last_error: extern "C" fn(*const c_void) -> *const c_char,
}

/// A status of onnxc.h that is not ONNXC_OK, and its sentence.
#[derive(Debug)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A type that a tensor's elements may have.
pub trait Element: Copy {
    const DTYPE: i32;
}

impl Element for f32 {
    const DTYPE: i32 = 1;
}
impl Element for u8 {
    const DTYPE: i32 = 2;
}
impl Element for i32 {
    const DTYPE: i32 = 6;
}
impl Element for i64 {
    const DTYPE: i32 = 7;
}
impl Element for f64 {
    const DTYPE: i32 = 11;
}

/// An input: borrowed elements and their shape.
pub struct Tensor<'a> {
    value: Value,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Tensor<'a> {
    /// Panics if the shape has another number of elements.
    pub fn new<T: Element>(elements: &'a [T], shape: &'a [i64]) -> Self {
        let count: i64 = shape.iter().product();
        assert_eq!(count, elements.len() as i64, "a shape of other elements");
        let value = Value {
            struct_size: std::mem::size_of::<Value>() as u32,
            kind: TENSOR,
            dtype: T::DTYPE,
            rank: shape.len() as i32,
            dims: shape.as_ptr(),
            data: elements.as_ptr() as *mut c_void,
            bytes: std::mem::size_of_val(elements) as u64,
            capacity: 0,
            object: ptr::null_mut(),
        };
        Tensor { value, borrowed: PhantomData }
    }
}

/// An output, which owns its elements.
pub struct Output {
    value: Value,
    table: &'static Table,
}

impl Output {
    pub fn shape(&self) -> &[i64] {
        match self.value.rank {
            0 => &[],
            rank => unsafe { slice::from_raw_parts(self.value.dims, rank as usize) },
        }
    }

    /// The elements; none if they are of another type.
    pub fn elements<T: Element>(&self) -> Option<&[T]> {
        if self.value.kind != TENSOR || self.value.dtype != T::DTYPE {
            return None;
        }
        let count = self.value.bytes as usize / std::mem::size_of::<T>();
        Some(match count {
            0 => &[],
            _ => unsafe { slice::from_raw_parts(self.value.data as *const T, count) },
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        (self.table.release)(&mut self.value);
    }
}

/// What one caller of a model needs. It may move between threads; `&mut self` keeps runs apart.
pub struct Context {
    handle: *mut c_void,
    table: &'static Table,
}

unsafe impl Send for Context {}

impl Context {
    /// threads: 0 is one for each processor.
    ///
    /// # Safety
    /// `model` is the `NAME_model` of a library that onnxc compiled.
    pub unsafe fn new(model: unsafe extern "C" fn() -> *const Table, threads: i32) -> Result<Self, Error> {
        let table = &*model();
        if table.abi_major != ABI_MAJOR {
            return Err(Error { status: 19, message: format!("interface version {}", table.abi_major) });
        }
        let options = Options {
            struct_size: std::mem::size_of::<Options>() as u32,
            threads,
            pool: ptr::null_mut(),
            weights_path: ptr::null(),
            target: ptr::null(),
        };
        let mut handle = ptr::null_mut();
        let status = (table.create)(&options, &mut handle);
        checked(table, ptr::null(), status)?;
        Ok(Context { handle, table })
    }

    pub fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Output>, Error> {
        let given: Vec<Value> = inputs.iter().map(|tensor| unsafe { ptr::read(&tensor.value) }).collect();
        let mut outputs: Vec<Output> = (0..self.table.output_count).map(|_| self.empty()).collect();
        let mut results: Vec<Value> = (0..outputs.len()).map(|_| self.empty_value()).collect();
        let (count, room) = (given.len() as i32, results.len() as i32);
        let status = (self.table.run)(self.handle, given.as_ptr(), count, results.as_mut_ptr(), room);
        checked(self.table, self.handle, status)?;
        for (output, value) in outputs.iter_mut().zip(results) {
            output.value = value;
        }
        Ok(outputs)
    }

    fn empty(&self) -> Output {
        Output { value: self.empty_value(), table: self.table }
    }

    fn empty_value(&self) -> Value {
        Value { struct_size: std::mem::size_of::<Value>() as u32, ..unsafe { std::mem::zeroed() } }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        (self.table.destroy)(self.handle);
    }
}

fn checked(table: &Table, handle: *const c_void, status: i32) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let message = unsafe { CStr::from_ptr((table.last_error)(handle)) }.to_string_lossy().into_owned();
    Err(Error { status, message })
}
