//! Components where nothing is what it is called, under every lint that could look into an expansion.
//!
//! It has passed when it compiles. A lint that speaks up here would speak up in an application.

#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(missing_docs, warnings)]
#![deny(
    unused,
    future_incompatible,
    keyword_idents,
    let_underscore,
    nonstandard_style,
    rust_2018_idioms,
    absolute_paths_not_starting_with_crate,
    ambiguous_negative_literals,
    explicit_outlives_requirements,
    impl_trait_redundant_captures,
    let_underscore_drop,
    meta_variable_misuse,
    missing_debug_implementations,
    non_ascii_idents,
    redundant_imports,
    redundant_lifetimes,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unreachable_pub,
    unused_import_braces,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences
)]
#![deny(
    clippy::all,
    clippy::nursery,
    clippy::pedantic,
    clippy::exhaustive_structs,
    clippy::expect_used,
    clippy::impl_trait_in_params,
    clippy::items_after_statements,
    clippy::missing_inline_in_public_items,
    clippy::missing_trait_methods,
    clippy::pub_use,
    clippy::std_instead_of_core,
    clippy::unwrap_used
)]

use ::evento_core::event_handler;

/// Names that an expansion might rely on, each meaning something else.
#[expect(dead_code, clippy::redundant_pub_crate, reason = "they are here to be in the way")]
mod shadow {
    pub(crate) struct Box;
    pub(crate) struct Component;
    pub(crate) struct Context;
    pub(crate) struct Event;
    pub(crate) struct None;
    pub(crate) struct Option;
    pub(crate) struct Result;
    pub(crate) struct Send;
    pub(crate) struct Some;
    pub(crate) struct String;
    pub(crate) struct Sync;
    pub(crate) struct ToString;
    pub(crate) mod alloc {}
    pub(crate) mod core {}
    pub(crate) mod evento_core {}
    pub(crate) mod std {}
}

#[expect(unused_imports, reason = "they are here to be in the way")]
use shadow::*;

/// An outcome, by a name that is not shadowed.
type Outcome = ::core::result::Result<(), ::core::fmt::Error>;

/// A field and a type may be keywords.
#[derive(Debug, ::evento_core::Event, ::serde::Serialize, ::serde::Deserialize)]
#[event(name = "type.matched", aggregate = "type")]
#[non_exhaustive]
pub struct r#Match {
    /// The aggregate.
    #[event(aggregate_id)]
    pub r#type: u64,
}

/// An event only some builds know.
#[cfg(feature = "extra")]
#[derive(Debug, ::evento_core::Event, ::serde::Serialize, ::serde::Deserialize)]
#[event(name = "type.extra", aggregate = "type")]
#[non_exhaustive]
pub struct Extra {
    /// The aggregate.
    #[event(aggregate_id)]
    pub id: ::std::string::String,
}

/// How often one handler is tried again.
const RETRIES: i32 = 2;

/// An executor.
const READ_MODEL: ::evento_core::ExecutorName = ::evento_core::ExecutorName::new("read-model");

/// A component whose name is a keyword.
#[::evento_core::projector(version = 1)]
#[derive(Debug)]
#[non_exhaustive]
pub struct r#Struct;

#[::evento_core::projector]
impl r#Struct {
    /// A method whose name is a keyword.
    ///
    /// # Errors
    /// Never.
    #[event_handler(executor = READ_MODEL, retry = RETRIES, retry_delay = "500ms", timeout = "1m")]
    #[expect(clippy::unused_async, clippy::missing_inline_in_public_items, reason = "a handler is async")]
    pub async fn r#type(&self, r#match: &r#Match) -> Outcome {
        let _: u64 = r#match.r#type;
        ::core::result::Result::Ok(())
    }

    #[cfg(feature = "extra")]
    #[event_handler]
    #[expect(clippy::unused_async, reason = "a handler is async")]
    async fn extra(&self, event: &Extra, ctx: &::evento_core::Context) -> Outcome {
        let _: (&Extra, u32) = (event, ctx.attempt());
        ::core::result::Result::Ok(())
    }
}

/// Everything from one macro: struct, event and handler.
macro_rules! whole {
    ($component:ident, $of:ty, $event:ident, $taken:ty, $name:literal) => {
        #[derive(Debug, ::evento_core::Event, ::serde::Serialize, ::serde::Deserialize)]
        #[event(name = $name, aggregate = "whole")]
        struct $event {
            #[event(aggregate_id)]
            id: u8,
        }

        #[::evento_core::projector(name = $name, start = "head", on_dead = "continue", checkpoint = "on-start")]
        #[derive(Debug)]
        struct $component;

        #[::evento_core::projector]
        impl $of {
            #[event_handler(executor = "whole")]
            async fn on(&self, event: &$taken, _: &::evento_core::Context) -> Outcome {
                let _: u8 = event.id;
                ::core::result::Result::Ok(())
            }
        }
    };
}

whole!(Made, Made, MadeOne, MadeOne, "made.one");
whole!(MadeAgain, MadeAgain, MadeTwo, MadeTwo, "made.two");

::evento_core::components! {
    /// All of them.
    pub TORTURE = [r#Struct, Made, MadeAgain]
}

#[cfg(test)]
mod tests {
    use ::core::{assert_eq, option::Option::Some};

    use super::{r#Match, TORTURE};

    #[test]
    fn names_carry_no_raw_prefix() {
        let component = &TORTURE.components[0];
        assert_eq!((component.name, component.handlers[0].method), ("Struct", "type"));
        assert_eq!(component.handlers[0].executor, Some(super::READ_MODEL));
        assert_eq!(::evento_core::Event::aggregate_id(&r#Match { r#type: 7 }), "7");
    }

    #[test]
    fn handlers_follow_their_cfg() {
        let extra = <usize as ::core::convert::From<bool>>::from(::core::cfg!(feature = "extra"));
        assert_eq!(TORTURE.components[0].handlers.len(), 1 + extra);
    }
}
