//! `#[event_handler]`: one method of a component's impl block.

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Attribute, Expr, ExprLit, FnArg, Lit, Meta, PatType, Path, ReceiverKind, ReturnType, Signature, Type,
    TypeReference, ext::IdentExt, spanned::Spanned,
};

use crate::{
    args::{Args, Integer, Schema},
    component::generated_at,
    diagnostics::Errors,
    item::Method,
};

static SCHEMA: Schema = Schema {
    attribute: "event_handler",
    options: &[
        ("executor", "executor = \"read-model\""),
        ("retry", "retry = 3"),
        ("retry_delay", "retry_delay = \"1s\""),
        ("timeout", "timeout = \"30s\""),
    ],
    elsewhere: &[
        ("crate", "it belongs on the impl block and on the struct"),
        ("version", "it belongs on the struct"),
        ("name", "it belongs on the struct, and names the component"),
    ],
};

const SHAPE: &str = "`(&self, event: &YourEvent)` or `(&self, event: &YourEvent, ctx: &Context)`";

/// One handler, as its component expands it.
pub(crate) struct Handler {
    /// Conditions under which it exists.
    pub(crate) cfgs: Vec<Attribute>,
    /// The type of the event it takes.
    pub(crate) event: Type,
    /// Its `HandlerDescriptor`.
    pub(crate) descriptor: TokenStream,
}

/// Takes the attribute off `method`, if there is one.
pub(crate) fn take_attribute(method: &mut Method) -> Option<Attribute> {
    let is_ours =
        |attr: &Attribute| attr.path().segments.last().is_some_and(|segment| segment.ident.unraw() == SCHEMA.attribute);
    let place = method.attrs.iter().position(is_ours)?;
    Some(method.attrs.remove(place))
}

/// Keeps the import of the attribute in use, which was taken off its method.
pub(crate) fn keep_import(path: &Path, cfgs: &[Attribute]) -> TokenStream {
    quote! {
        #(#cfgs)*
        #[allow(unused_imports)]
        use #path as _;
    }
}

pub(crate) fn cfgs(method: &Method) -> Vec<Attribute> {
    method.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).cloned().collect()
}

/// What the method's attribute and signature say; nothing where the signature is no handler's.
pub(crate) fn parse(attribute: &Attribute, method: &Method, errors: &mut Errors) -> Option<Handler> {
    let tokens = match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(pair) => {
            errors.over(pair, "options stand in parentheses: `#[event_handler(retry = 3)]`");
            TokenStream::new()
        }
    };
    let args = Args::parse(&SCHEMA, tokens, errors);
    let options = options(&args, errors);
    let Parameters { event, context } = parameters(&method.sig, errors)?;
    let cfgs = cfgs(method);
    let new = new_descriptor(&method.sig, &event, context.as_ref());
    Some(Handler { descriptor: quote!(#(#cfgs)* #new #options), cfgs, event })
}

fn new_descriptor(sig: &Signature, event: &Type, context: Option<&Type>) -> TokenStream {
    let method = &sig.ident;
    let name = method.unraw().to_string();
    let local = |name, span: Span| Ident::new(name, Span::mixed_site().located_at(span));
    let output = match &sig.output {
        ReturnType::Default => method.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    let out = local("out", output);
    let finish = quote_spanned!(generated_at(output)=> __e::HandlerOutput::into_result(#out));
    let ctx = context.map(|ty| local("ctx", ty.span()));
    let given = local("ctx", Span::call_site());
    let (this, taken) = (local("this", method.span()), local("event", method.span()));
    let decode = quote_spanned!(generated_at(event.span())=> __e::decode::<#event>(#given));
    let call = quote_spanned! {generated_at(method.span())=>
        |#this, #given| {
            let #taken = #decode?;
            __e::called(async move {
                let #out = Self::#method(__e::typed(#this), &#taken, #ctx).await;
                #finish
            })
        }
    };
    // `line!()` reads the place of the outermost expansion, so this one has to stand in the user's own.
    let location = quote_spanned!(method.span()=> __e::location!());
    quote!(__e::HandlerDescriptor::new(#name, __e::EventType::of::<#event>(), #location, #call))
}

/// The calls behind `HandlerDescriptor::new(..)`, one for each option.
fn options(args: &Args, errors: &mut Errors) -> TokenStream {
    let mut calls = TokenStream::new();
    if let Some(executor) = executor(args, errors) {
        calls.extend(quote!(.with_executor(#executor)));
    }
    if let Some(retry) = retry(args, errors) {
        calls.extend(quote!(.with_retry(#retry)));
    }
    if let Some(delay) = duration(args, "retry_delay", errors) {
        calls.extend(quote!(.with_retry_delay(#delay)));
    }
    if let Some(timeout) = duration(args, "timeout", errors) {
        calls.extend(quote!(.with_timeout(#timeout)));
    }
    calls
}

fn executor(args: &Args, errors: &mut Errors) -> Option<TokenStream> {
    match args.value("executor", errors)? {
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) if is_executor_name(&name.value()) => {
            Some(quote!(__e::ExecutorName::new(#name)))
        }
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => {
            errors.at(name.span(), "an executor's name has 1 to 64 bytes of `a-z`, `0-9`, `-` and `_`");
            None
        }
        Expr::Lit(other) => {
            let cure = "`executor = \"read-model\"`, `executor = READ_MODEL`";
            errors.over(other, format!("`executor` is a name or a constant: {cure}"));
            None
        }
        constant => Some(quote!(#constant)),
    }
}

/// The rule of `ExecutorName::new`, which would point at less.
fn is_executor_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

fn retry(args: &Args, errors: &mut Errors) -> Option<TokenStream> {
    let under_executor = args.has("executor");
    match args.integer("retry", -1..=1000, errors)? {
        Integer::Literal(-1) if under_executor => {
            let value = args.value("retry", errors)?;
            errors.over(
                value,
                "`retry = -1` is for ever, and no handler may hold an executor for ever: write how often to retry (0 to \
                 1000), or leave out the executor",
            );
            None
        }
        Integer::Literal(times) => Some(Literal::i64_unsuffixed(times).to_token_stream()),
        Integer::Constant(times) => {
            let span = generated_at(times.span());
            let check = Ident::new(if under_executor { "retry_under_executor" } else { "retry" }, span);
            Some(quote_spanned!(span=> __e::#check(#times)))
        }
    }
}

fn duration(args: &Args, key: &str, errors: &mut Errors) -> Option<TokenStream> {
    let millis = Literal::u64_unsuffixed(args.millis(key, errors)?);
    Some(quote!(__e::Duration::from_millis(#millis)))
}

struct Parameters {
    event: Type,
    context: Option<Type>,
}

fn parameters(sig: &Signature, errors: &mut Errors) -> Option<Parameters> {
    let before = errors.count();
    if sig.asyncness.is_none() {
        errors.at(sig.fn_token.span, "an event handler is async: write `async fn`");
    }
    if !sig.generics.params.is_empty() {
        errors
            .over(&sig.generics.params, "an event handler is not generic: its signature names the one event it takes");
    }
    if !matches!(sig.safety, syn::Safety::Default) || sig.abi.is_some() || sig.constness.is_some() {
        errors.at(
            sig.ident.span(),
            "an event handler is a plain method: write `async fn`, without `unsafe`, `const` or `extern`",
        );
    }
    let mut inputs = sig.inputs.iter().peekable();
    match inputs.next_if(|input| matches!(input, FnArg::Receiver(_))) {
        Some(FnArg::Receiver(receiver)) if is_shared(&receiver.kind) => {}
        Some(other) => errors.over(
            other,
            "an event handler takes `&self`: events are handled side by side by one instance, so what changes in it \
             goes behind a lock",
        ),
        None => errors.at(sig.ident.span(), format!("an event handler is a method: its parameters are {SHAPE}")),
    }
    let event = match inputs.next() {
        Some(FnArg::Typed(parameter)) => event_type(parameter, errors),
        _ => {
            errors.at(sig.ident.span(), format!("an event handler takes an event: its parameters are {SHAPE}"));
            None
        }
    };
    let context = match inputs.next() {
        Some(FnArg::Typed(PatType { ty, .. })) => Some((**ty).clone()),
        _ => None,
    };
    for surplus in inputs {
        errors.over(surplus, format!("one parameter too many: an event handler's parameters are {SHAPE}"));
    }
    if let Some(variadic) = &sig.variadic {
        errors.over(variadic, format!("an event handler's parameters are {SHAPE}"));
    }
    if errors.count() > before {
        return None;
    }
    Some(Parameters { event: event?, context })
}

/// `&self`, also in its long form.
fn is_shared(receiver: &ReceiverKind) -> bool {
    match receiver {
        ReceiverKind::Reference(_, _, mutable) => mutable.is_none(),
        ReceiverKind::Typed(_, ty) => quote!(#ty).to_string() == "& Self",
        _ => false,
    }
}

fn event_type(parameter: &PatType, errors: &mut Errors) -> Option<Type> {
    let ty = ungrouped(&parameter.ty);
    let Type::Reference(TypeReference { lifetime, mutability: None, elem, .. }) = ty else {
        let bare = match ty {
            Type::Reference(reference) => reference.elem.to_token_stream(),
            other => other.to_token_stream(),
        };
        errors.over(&parameter.ty, format!("an event handler takes its event by shared reference: `&{bare}`"));
        return None;
    };
    if let Some(lifetime) = lifetime.as_ref().filter(|lifetime| lifetime.ident != "_") {
        errors.at(
            lifetime.span(),
            format!("the event lives as long as the attempt, not `{lifetime}`: leave the lifetime out"),
        );
    }
    if let Type::ImplTrait(open) = &**elem {
        errors.over(open, "an event handler is not generic: name the one event it takes");
    }
    if let Some(span) = find_self(elem.to_token_stream()) {
        errors.at(span, "`Self` is the component, which is no event: name the event's type");
    }
    Some((**elem).clone())
}

/// What a `macro_rules!` fragment holds.
fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        ty => ty,
    }
}

fn find_self(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) => (ident == "Self").then(|| ident.span()),
        TokenTree::Group(group) => find_self(group.stream()),
        _ => None,
    })
}

/// The attribute where no component's attribute has taken it off before: that is an error.
pub(crate) fn expand_alone(item: TokenStream) -> TokenStream {
    let error = syn::Error::new(
        Span::call_site(),
        "`#[event_handler]` marks a method that stands in an annotated impl block: write `#[projector]` above the \
         `impl`, and the attribute directly on the method (one that `cfg_attr` or a macro call puts there comes too late)",
    );
    let error = error.into_compile_error();
    quote!(#item #error)
}
