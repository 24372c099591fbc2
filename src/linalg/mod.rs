//! The dense kernels of the crate: rows times packed weights, and weighted sums of rows.
//!
//! One register tile serves both, written once over `pulp`'s vectors and dispatched at run time to
//! what the processor has (AVX-512, AVX2, NEON). Each score is the sum over the inputs in their order,
//! whatever the block it is computed in, so results depend neither on blocks nor on threads.

mod gather;
mod panels;

pub(crate) use gather::gather;
pub use panels::Panels;

use pulp::{Arch, Simd, WithSimd};

use crate::data::Real;

/// A stored value that the kernels know vectors of.
pub trait Element: Real {
    /// Runs the job with the widest vectors of this machine.
    #[doc(hidden)]
    fn run(job: panels::Product<'_, Self>);
    #[doc(hidden)]
    fn run_sparse(job: panels::SparseProduct<'_, Self>);
    #[doc(hidden)]
    fn run_gather(job: gather::Gather<'_, Self>);
    /// Number of values in such a vector.
    fn lanes() -> usize;
}

/// Vectors of an element under one instruction set.
pub(crate) trait Lane<S: Simd>: Real {
    type Vector: Copy;
    /// Values in a vector.
    const LANES: usize;
    fn splat(simd: S, value: Self) -> Self::Vector;
    /// a·b + c.
    fn fused(simd: S, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn vectors(values: &[Self]) -> (&[Self::Vector], &[Self]);
    fn vectors_mut(values: &mut [Self]) -> (&mut [Self::Vector], &mut [Self]);
}

macro_rules! element {
    ($real:ty, $vector:ident, $lanes:ident, $splat:ident, $fused:ident, $view:ident, $view_mut:ident) => {
        impl<S: Simd> Lane<S> for $real {
            type Vector = S::$vector;
            const LANES: usize = S::$lanes;
            #[inline(always)]
            fn splat(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn fused(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$fused(a, b, c)
            }
            #[inline(always)]
            fn vectors(values: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$view(values)
            }
            #[inline(always)]
            fn vectors_mut(values: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$view_mut(values)
            }
        }
        impl WithSimd for panels::Product<'_, $real> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                self.compute(simd);
            }
        }
        impl WithSimd for panels::SparseProduct<'_, $real> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                self.compute(simd);
            }
        }
        impl WithSimd for gather::Gather<'_, $real> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                self.compute(simd);
            }
        }
        impl Element for $real {
            fn run(job: panels::Product<'_, Self>) {
                Arch::new().dispatch(job);
            }
            fn run_sparse(job: panels::SparseProduct<'_, Self>) {
                Arch::new().dispatch(job);
            }
            fn run_gather(job: gather::Gather<'_, Self>) {
                Arch::new().dispatch(job);
            }
            fn lanes() -> usize {
                struct Lanes;
                impl WithSimd for Lanes {
                    type Output = usize;
                    fn with_simd<S: Simd>(self, _: S) -> usize {
                        S::$lanes
                    }
                }
                Arch::new().dispatch(Lanes)
            }
        }
    };
}

element!(f32, f32s, F32_LANES, splat_f32s, mul_add_f32s, as_simd_f32s, as_mut_simd_f32s);
element!(f64, f64s, F64_LANES, splat_f64s, mul_add_f64s, as_simd_f64s, as_mut_simd_f64s);
