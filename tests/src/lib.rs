//! The test kit of Evento.

pub mod conformance;
pub mod faulty;
pub mod probe;
pub mod told;
