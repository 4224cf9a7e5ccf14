//! An impl block as far as the attributes look into it: signatures are parsed, bodies stay opaque, so that an editor
//! completes in code that is not finished yet.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt};
use syn::{
    Attribute, Generics, Result, Signature, Token, Type, Visibility, braced,
    parse::{Parse, ParseStream},
    token::Brace,
};

pub(crate) struct ImplBlock {
    attrs: Vec<Attribute>,
    impl_token: Token![impl],
    pub(crate) generics: Generics,
    /// What stands before `for` in a trait's impl, which the attributes refuse.
    pub(crate) of_trait: Option<(Type, Token![for])>,
    pub(crate) self_ty: Type,
    brace: Brace,
    inner_attrs: Vec<Attribute>,
    pub(crate) items: Vec<Item>,
}

pub(crate) enum Item {
    Method(Box<Method>),
    Other(TokenStream),
}

pub(crate) struct Method {
    pub(crate) attrs: Vec<Attribute>,
    vis: Visibility,
    pub(crate) sig: Signature,
    body: TokenTree,
}

impl Parse for ImplBlock {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let impl_token = input.parse()?;
        let mut generics = if input.peek(Token![<]) { input.parse()? } else { Generics::default() };
        let mut self_ty = input.parse()?;
        let mut of_trait = None;
        if let Some(for_token) = input.parse()? {
            of_trait = Some((std::mem::replace(&mut self_ty, input.parse()?), for_token));
        }
        generics.where_clause = input.parse()?;
        let body;
        let brace = braced!(body in input);
        let inner_attrs = body.call(Attribute::parse_inner)?;
        let mut items = Vec::new();
        while !body.is_empty() {
            items.push(body.parse()?);
        }
        Ok(Self { attrs, impl_token, generics, of_trait, self_ty, brace, inner_attrs, items })
    }
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        if starts_method(input) {
            let (vis, sig, body) = (input.parse()?, input.parse()?, input.parse()?);
            return Ok(Self::Method(Box::new(Method { attrs, vis, sig, body })));
        }
        let mut tokens = TokenStream::new();
        tokens.append_all(attrs);
        while !input.is_empty() {
            let token: TokenTree = input.parse()?;
            let last = match &token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            tokens.append(token);
            if last {
                break;
            }
        }
        Ok(Self::Other(tokens))
    }
}

fn starts_method(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.parse::<Visibility>().is_ok()
        && (ahead.peek(Token![fn])
            || ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![extern])
            || ahead.peek(Token![const])
                && (ahead.peek2(Token![fn]) || ahead.peek2(Token![async]) || ahead.peek2(Token![unsafe])))
}

impl ToTokens for ImplBlock {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.append_all(&self.attrs);
        self.impl_token.to_tokens(tokens);
        self.generics.to_tokens(tokens);
        if let Some((of_trait, for_token)) = &self.of_trait {
            of_trait.to_tokens(tokens);
            for_token.to_tokens(tokens);
        }
        self.self_ty.to_tokens(tokens);
        self.generics.where_clause.to_tokens(tokens);
        self.brace.surround(tokens, |tokens| {
            tokens.append_all(&self.inner_attrs);
            tokens.append_all(&self.items);
        });
    }
}

impl ToTokens for Item {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Method(method) => {
                let Method { attrs, vis, sig, body } = &**method;
                tokens.append_all(attrs);
                vis.to_tokens(tokens);
                sig.to_tokens(tokens);
                body.to_tokens(tokens);
            }
            Self::Other(other) => other.to_tokens(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::ImplBlock;

    #[test]
    fn what_is_parsed_is_emitted_again() {
        for tokens in [
            quote!(
                #[doc = "x"]
                impl View {
                    #![allow(dead_code)]
                    const A: [u8; 1] = [0; 1];
                    type B = u8;
                }
            ),
            quote!(impl<T: Copy> super::View<T> where T: Send { pub(crate) async fn a(&self, x: &A) -> R<()> { half typed (a b) } }),
            quote!(impl View { made!(); made! { x } const fn c() {} unsafe fn d(self: &Self); extern "C" fn e() {} }),
            quote!(impl Default for View { fn default() -> Self { x } }),
        ] {
            let block: ImplBlock = syn::parse2(tokens.clone()).unwrap();
            assert_eq!(block.to_token_stream().to_string(), tokens.to_string());
        }
    }
}
