//! The component attributes: on the struct they declare its identity, on the impl block its handlers.

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{Generics, ItemStruct, ext::IdentExt, spanned::Spanned};

use crate::{
    args::{Args, Integer, Schema},
    diagnostics::Errors,
    handler::{self, Handler},
    item::{ImplBlock, Item},
};

/// What sort of component an attribute declares.
pub(crate) struct Kind {
    /// With its article: `a projector`.
    spoken: &'static str,
    /// The variant of `Kind`.
    variant: &'static str,
    /// The trait that says a struct carries the attribute.
    marker: &'static str,
    /// The function that demands it.
    check: &'static str,
    /// The variant of `StartAt`, unless the struct says another.
    start: &'static str,
    on_struct: Schema,
    on_impl: Schema,
}

pub(crate) static PROJECTOR: Kind = Kind {
    spoken: "a projector",
    variant: "Projector",
    marker: "is_projector",
    check: "projector",
    start: "Beginning",
    on_struct: Schema {
        attribute: "projector",
        options: &[
            ("version", "version = 1"),
            ("name", "name = \"order-view\""),
            ("start", "start = \"beginning\""),
            ("on_dead", "on_dead = \"park\""),
            ("transient", "transient = \"redeliver\""),
            ("checkpoint", "checkpoint = \"watermark\""),
            ("crate", "crate = \"::evento_core\""),
        ],
        elsewhere: &[
            ("executor", "it belongs on an `#[event_handler]` method"),
            ("retry", "it belongs on an `#[event_handler]` method"),
            ("retry_delay", "it belongs on an `#[event_handler]` method"),
            ("timeout", "it belongs on an `#[event_handler]` method"),
        ],
    },
    on_impl: Schema {
        attribute: "projector",
        options: &[("crate", "crate = \"::evento_core\"")],
        elsewhere: &[
            ("version", "it belongs on the struct"),
            ("name", "it belongs on the struct"),
            ("start", "it belongs on the struct"),
            ("on_dead", "it belongs on the struct"),
            ("transient", "it belongs on the struct"),
            ("checkpoint", "it belongs on the struct"),
            ("executor", "it belongs on an `#[event_handler]` method"),
            ("retry", "it belongs on an `#[event_handler]` method"),
            ("retry_delay", "it belongs on an `#[event_handler]` method"),
            ("timeout", "it belongs on an `#[event_handler]` method"),
        ],
    },
};

/// A generated token that is shown at `span`, and resolved as what it is: the macro's own.
pub(crate) fn generated_at(span: Span) -> Span {
    Span::call_site().located_at(span)
}

pub(crate) fn expand(kind: &'static Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = match keyword(item.clone()) {
        Some(word) if word == "struct" => on_struct(kind, args, &item, &mut errors),
        Some(word) if word == "impl" => on_impl(kind, args, &item, &mut errors),
        word => {
            let (Kind { spoken, .. }, attribute) = (kind, kind.on_struct.attribute);
            errors.at(
                word.map_or_else(Span::call_site, |word| word.span()),
                format!(
                    "{spoken} is a struct: write `#[{attribute}(version = 1)]` on it, and `#[{attribute}]` on the impl \
                     block that holds its handlers"
                ),
            );
            item
        }
    };
    let errors = errors.into_tokens();
    quote!(#expanded #errors)
}

/// The word that says what sort of item follows, behind attributes and visibility.
fn keyword(item: TokenStream) -> Option<Ident> {
    item.into_iter().find_map(|token| match token {
        TokenTree::Ident(word) if !["pub", "unsafe", "default"].iter().any(|other| word == other) => Some(word),
        _ => None,
    })
}

fn refuse_generics(kind: &Kind, generics: &Generics, errors: &mut Errors) -> bool {
    let generic = !generics.params.is_empty();
    if generic {
        let Kind { spoken, .. } = kind;
        errors.over(
            &generics.params,
            format!(
                "{spoken} is not generic: it is registered as one concrete type, so wrap the one you mean in a struct"
            ),
        );
    }
    generic
}

fn on_struct(kind: &'static Kind, args: TokenStream, item: &TokenStream, errors: &mut Errors) -> TokenStream {
    let args = Args::parse(&kind.on_struct, args, errors);
    let core = args.core_path(errors);
    let identity = identity(kind, &args, errors);
    let ItemStruct { ident, generics, .. } = match syn::parse2(item.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            errors.add(error);
            return item.clone();
        }
    };
    if refuse_generics(kind, &generics, errors) {
        return item.clone();
    }

    let Identity { version, name, start, on_dead, transient, checkpoint } = identity;
    let name = name.unwrap_or_else(|| ident.unraw().to_string());
    let marker = Ident::new(kind.marker, Span::call_site());
    let variant = Ident::new(kind.variant, Span::call_site());
    let location = quote_spanned!(ident.span()=> __e::location!());
    quote! {
        #item
        const _: () = {
            use #core::__private as __e;

            #[automatically_derived]
            impl __e::#marker for #ident {}

            #[automatically_derived]
            impl __e::Component for #ident {
                const KIND: __e::Kind = __e::Kind::#variant;
                const NAME: &'static str = #name;
                const VERSION: u32 = #version;
                const START: __e::StartAt = __e::StartAt::#start;
                const ON_DEAD: __e::OnDead = __e::OnDead::#on_dead;
                const TRANSIENT: __e::OnTransient = __e::OnTransient::#transient;
                const CHECKPOINT: __e::Option<__e::CheckpointMode> = #checkpoint;
                const LOCATION: __e::Location = #location;
            }

            __e::inventory::submit! { __e::Entry::of::<#ident>() }
        };
    }
}

/// What the struct's attribute says, defaults filled in.
struct Identity {
    version: TokenStream,
    name: Option<String>,
    start: Ident,
    on_dead: Ident,
    transient: Ident,
    checkpoint: TokenStream,
}

fn identity(kind: &Kind, args: &Args, errors: &mut Errors) -> Identity {
    let variant = |name| Ident::new(name, Span::call_site());
    let version = match args.integer("version", 1..=u32::MAX.into(), errors) {
        Some(Integer::Constant(version)) => {
            let check = quote_spanned!(generated_at(version.span())=> __e::version);
            quote_spanned!(generated_at(version.span())=> #check(#version))
        }
        Some(Integer::Literal(version)) => {
            let version = Literal::i64_unsuffixed(version);
            quote!(#version)
        }
        None => quote!(1),
    };
    let start = args.choice("start", &[("beginning", "Beginning"), ("head", "Head")], errors);
    let on_dead = args.choice("on_dead", &[("park", "Park"), ("continue", "Continue")], errors);
    let transient = args.choice("transient", &[("spend", "Spend"), ("redeliver", "Redeliver")], errors);
    let modes = [("on-start", "OnStart"), ("watermark", "Watermark")];
    let checkpoint = match args.choice("checkpoint", &modes, errors).map(variant) {
        Some(mode) => quote!(__e::Option::Some(__e::CheckpointMode::#mode)),
        None => quote!(__e::Option::None),
    };
    Identity {
        version,
        name: args.stored_name("name", errors).map(syn::LitStr::value),
        start: variant(start.unwrap_or(kind.start)),
        on_dead: variant(on_dead.unwrap_or("Park")),
        transient: variant(transient.unwrap_or("Spend")),
        checkpoint,
    }
}

fn on_impl(kind: &'static Kind, args: TokenStream, item: &TokenStream, errors: &mut Errors) -> TokenStream {
    let args = Args::parse(&kind.on_impl, args, errors);
    let core = args.core_path(errors);
    let mut block: ImplBlock = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            errors.add(error);
            return item.clone();
        }
    };
    if let Some((of_trait, _)) = &block.of_trait {
        let attribute = kind.on_impl.attribute;
        errors.over(
            of_trait,
            format!("handlers are methods of the struct's own: write `#[{attribute}] impl YourStruct {{ .. }}` without a trait"),
        );
    }
    let refused = refuse_generics(kind, &block.generics, errors) || block.of_trait.is_some();
    let (imports, handlers) = take_handlers(kind, &mut block, errors);
    if refused {
        return quote!(#block);
    }

    let ty = &block.self_ty;
    let check = Ident::new(kind.check, Span::call_site());
    let descriptors = handlers.iter().map(|handler| &handler.descriptor);
    let taken = handlers.iter().map(|handler| handles_event(handler, ty));
    quote! {
        #block
        const _: () = {
            use #core::__private as __e;
            #(#imports)*

            const _: () = __e::#check::<#ty>();

            #[automatically_derived]
            impl __e::has_handlers for #ty {
                const HANDLERS: &'static [__e::HandlerDescriptor] = &[#(#descriptors),*];
            }

            #(#taken)*
        };
    }
}

/// Takes the handlers' attributes off, and reads what they say.
fn take_handlers(kind: &Kind, block: &mut ImplBlock, errors: &mut Errors) -> (Vec<TokenStream>, Vec<Handler>) {
    let (mut imports, mut handlers) = (Vec::new(), Vec::new());
    let (mut known_imports, mut seen) = (Vec::new(), false);
    for item in &mut block.items {
        let Item::Method(method) = item else { continue };
        let Some(attribute) = handler::take_attribute(method) else { continue };
        seen = true;
        let import = handler::keep_import(attribute.path(), &handler::cfgs(method));
        if !known_imports.contains(&import.to_string()) {
            known_imports.push(import.to_string());
            imports.push(import);
        }
        handlers.extend(handler::parse(&attribute, method, errors));
        if let Some(second) = handler::take_attribute(method) {
            errors.over(&second, "a second `#[event_handler]` on one method: remove one");
        }
    }
    if !seen {
        errors.over(
            &block.self_ty,
            format!(
                "this `#[{}]` block has no `#[event_handler]` method: mark one (a method that a macro call inside the \
                 block makes is not seen)",
                kind.on_impl.attribute
            ),
        );
    }
    (imports, handlers)
}

/// The impl that a second handler of the same event collides with, shown where each names the event.
fn handles_event(Handler { cfgs, event, .. }: &Handler, ty: &syn::Type) -> TokenStream {
    let span = event.span();
    let (impl_token, for_token) = (syn::token::Impl(span), syn::token::For(span));
    let body = quote_spanned!(span=> {});
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        #impl_token __e::HandlesEvent<#event> #for_token #ty #body
    }
}
