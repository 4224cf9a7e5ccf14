//! What the attributes expand to, kept in files: it is read by people, with `cargo expand`.
//!
//! `EVENTO_GOLDEN=write cargo test -p evento-macros` writes the files anew.

use std::{fs, path::PathBuf};

use proc_macro2::TokenStream;
use quote::quote;

use crate::{component, event};

fn path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn order_placed() -> TokenStream {
    event::expand(quote! {
        #[event(name = "order.placed", aggregate = "order")]
        pub struct OrderPlaced {
            #[event(aggregate_id)]
            order_id: String,
            total_cents: i64,
        }
    })
}

fn order_view() -> TokenStream {
    component::expand(
        &component::PROJECTOR,
        quote!(version = 1),
        quote!(
            pub struct OrderView {
                db: Db,
            }
        ),
    )
}

fn order_view_handlers() -> TokenStream {
    let block = quote! {
        impl OrderView {
            #[event_handler]
            async fn on_placed(&self, event: &OrderPlaced) -> anyhow::Result<()> {
                self.db.insert(event)
            }

            #[event_handler(executor = "read-model", retry = 3)]
            async fn on_total(&self, event: &OrderTotalRecomputed, ctx: &Context) -> anyhow::Result<()> {
                self.db.update(event, ctx.position())
            }
        }
    };
    component::expand(&component::PROJECTOR, TokenStream::new(), block)
}

fn every_option() -> TokenStream {
    let args = quote!(
        version = VERSION,
        name = "view",
        start = "head",
        on_dead = "continue",
        transient = "redeliver",
        checkpoint = "on-start",
        crate = "facade::evento_core"
    );
    let block = quote! {
        impl super::r#View {
            #[cfg(feature = "extra")]
            #[evento_core::event_handler(executor = READ_MODEL, retry = RETRIES, retry_delay = "500ms", timeout = "5m")]
            async fn r#type(&self, _: &A) -> anyhow::Result<()> {
                Ok(())
            }

            #[evento_core::event_handler(retry = -1)]
            async fn on_b(&self, _: &B) -> anyhow::Result<()> {
                Ok(())
            }

            fn helper() {}
        }
    };
    let view = component::expand(
        &component::PROJECTOR,
        args,
        quote!(
            struct r#View;
        ),
    );
    let handlers = component::expand(&component::PROJECTOR, quote!(crate = "facade::evento_core"), block);
    quote!(#view #handlers)
}

/// The expansion as `cargo expand` shows it, a blank line between the items of a block.
fn rendered(tokens: TokenStream) -> String {
    let plain = prettyplease::unparse(&syn::parse2(tokens).unwrap());
    let mut text = String::new();
    let mut previous = "{";
    for line in plain.lines() {
        let begins = ["    const _", "    #[automatically", "    #[cfg", "    __e::inventory"]
            .iter()
            .any(|word| line.starts_with(word));
        if begins && !previous.ends_with('{') && !previous.ends_with(']') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
        previous = line;
    }
    text
}

#[track_caller]
fn assert_golden(name: &str, tokens: TokenStream) {
    let (file, expansion) = (path(&format!("src/golden/{name}.rs")), rendered(tokens));
    if std::env::var("EVENTO_GOLDEN").is_ok_and(|wish| wish == "write") {
        fs::write(&file, &expansion).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == expansion, "golden file `{name}` (- golden, + now):\n{}", difference(&golden, &expansion));
}

/// The lines in which two texts differ, between the common ones at both ends.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = old[head..old.len() - tail].iter().map(|line| format!("- {line}\n"));
    let added = new[head..new.len() - tail].iter().map(|line| format!("+ {line}\n"));
    std::iter::once(format!("line {}:\n", head + 1)).chain(removed).chain(added).collect()
}

#[test]
fn event() {
    assert_golden("event", order_placed());
}

#[test]
fn component_struct() {
    assert_golden("component_struct", order_view());
}

#[test]
fn component_impl() {
    assert_golden("component_impl", order_view_handlers());
}

#[test]
fn options() {
    assert_golden("options", every_option());
}

#[test]
fn the_chapter_shows_the_golden_files() {
    let chapter = fs::read_to_string(path("../evento-core/docs/expansion.md")).unwrap();
    let shown: String =
        chapter.lines().filter(|line| !line.starts_with("# ")).map(|line| format!("{line}\n")).collect();
    for name in ["event", "component_struct", "component_impl"] {
        let golden = fs::read_to_string(path(&format!("src/golden/{name}.rs"))).unwrap();
        assert!(
            shown.contains(&format!("\n{golden}```")),
            "docs/expansion.md shows another expansion than golden/{name}.rs"
        );
    }
}

#[test]
fn a_difference_names_its_lines() {
    assert_eq!(difference("a\nb\nc", "a\nx\ny\nc"), "line 2:\n- b\n+ x\n+ y\n");
}
