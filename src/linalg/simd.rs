//! The vectors that kernels are written over, and the choice of their width at run time.

use pulp::{Arch, Simd, WithSimd};

use crate::data::Real;

/// A stored value that the kernels know vectors of.
pub trait Element: Real {
    /// Runs the kernel with the widest vectors of this machine.
    fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Output;
    /// Number of values in such a vector.
    fn lanes() -> usize;
}

/// Work on vectors, written once for all instruction sets.
pub trait Kernel<T> {
    /// What it returns.
    type Output;
    /// Does the work; all that it calls must be inlined.
    fn compute<S: Simd>(self, simd: S) -> Self::Output
    where
        T: Lane<S>;
}

/// Vectors of an element under one instruction set.
pub trait Lane<S: Simd>: Real {
    /// A vector.
    type Vector: Copy;
    /// Values in a vector.
    const LANES: usize;
    /// The same value in all places.
    fn splat(simd: S, value: Self) -> Self::Vector;
    /// The sum of its values.
    fn total(simd: S, vector: Self::Vector) -> Self;
    /// a + b.
    fn plus(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a·b + c.
    fn fused(simd: S, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Whole vectors, and the values left over.
    fn vectors(values: &[Self]) -> (&[Self::Vector], &[Self]);
    /// Whole vectors, and the values left over.
    fn vectors_mut(values: &mut [Self]) -> (&mut [Self::Vector], &mut [Self]);
}

macro_rules! element {
    (
        $real:ty, $vector:ident, $lanes:ident, $splat:ident, $total:ident, $add:ident, $fused:ident,
        $view:ident, $view_mut:ident
    ) => {
        impl<S: Simd> Lane<S> for $real {
            type Vector = S::$vector;
            const LANES: usize = S::$lanes;
            #[inline(always)]
            fn splat(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn total(simd: S, vector: S::$vector) -> Self {
                simd.$total(vector)
            }
            #[inline(always)]
            fn plus(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
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
        impl Element for $real {
            fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Output {
                struct Dispatched<K>(K);
                impl<K: Kernel<$real>> WithSimd for Dispatched<K> {
                    type Output = K::Output;
                    #[inline(always)]
                    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
                        self.0.compute(simd)
                    }
                }
                Arch::new().dispatch(Dispatched(kernel))
            }
            fn lanes() -> usize {
                struct Lanes;
                impl Kernel<$real> for Lanes {
                    type Output = usize;
                    fn compute<S: Simd>(self, _: S) -> usize {
                        S::$lanes
                    }
                }
                Self::dispatch(Lanes)
            }
        }
    };
}

element!(
    f32,
    f32s,
    F32_LANES,
    splat_f32s,
    reduce_sum_f32s,
    add_f32s,
    mul_add_f32s,
    as_simd_f32s,
    as_mut_simd_f32s
);
element!(
    f64,
    f64s,
    F64_LANES,
    splat_f64s,
    reduce_sum_f64s,
    add_f64s,
    mul_add_f64s,
    as_simd_f64s,
    as_mut_simd_f64s
);
