//! The one integration binary.
mod smoke;
