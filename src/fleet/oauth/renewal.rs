//! How a grant changes: taken over from another process, renewed without a person, granted by one.
//!
//! What exchanges something that can be used once (a code, a refresh token) runs to its end on a task of
//! its own: a caller that gives up must not lose what was bought.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::grant::{Client, Freshness, Grant, Secret};

use super::authority::{Authority, NotRefreshed, Obtained};
use super::demand::union;
use super::error::OAuthError;
use super::person::{read, state_of};
use super::{Flow, Inner, Registered, Turn, Why};

/// A token that is refused within this time of its coming is not renewed again.
pub(super) const SETTLING: Duration = Duration::from_mins(1);

/// How often one process lets a server demand more. A server that never has enough is hostile or broken.
pub(super) const STEP_UPS_MAX: u32 = 8;

/// What is wanted of a renewal.
#[derive(Default)]
pub(super) struct Wish {
    /// The token that will not do.
    pub(super) used: Option<Secret>,
    /// What the server said when it refused.
    pub(super) challenge: Option<String>,
    /// What must be granted, if not merely what was.
    pub(super) scopes: Vec<String>,
    /// Whether the authorization server may have changed.
    pub(super) rediscover: bool,
    /// Whether what is held will not do, however good it is.
    pub(super) insist: bool,
    /// Whether nobody is to be asked: only what another process brought will do.
    pub(super) only_adopt: bool,
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The token is the old one.
    Nothing,
    /// Another process had a new one.
    Adopted,
    /// There is a new one.
    Renewed,
}

impl Inner {
    /// Gets another token without a person, if that goes.
    pub(super) async fn renew(self: &Arc<Self>, turn: &mut Turn, wish: Wish) -> Result<Outcome, OAuthError> {
        let known = turn.authority.take().filter(|_| !wish.rediscover);
        let this = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut authority = known;
            let renewed = this.renew_to_the_end(&mut authority, wish).await;
            (authority, renewed)
        });
        let (authority, renewed) = task.await.map_err(|_| ended())?;
        turn.authority = authority;
        renewed
    }

    async fn renew_to_the_end(
        &self,
        authority: &mut Option<Authority>,
        wish: Wish,
    ) -> Result<Outcome, OAuthError> {
        let held = self.newest().await?;
        if self.adopt_other(held.as_ref(), &wish) {
            return Ok(Outcome::Adopted);
        }
        let can_refresh =
            held.as_ref().and_then(|held| held.tokens.as_ref()).is_some_and(|held| held.refresh.is_some());
        // A refresh token buys what was granted, not more.
        let is_enough = wish.scopes.is_empty();
        if wish.only_adopt || (self.settings.flow == Flow::Person && !(can_refresh && is_enough)) {
            return Ok(Outcome::Nothing);
        }
        if authority.is_none() {
            *authority =
                Some(Authority::discover(&self.wire, &self.server, wish.challenge.as_deref()).await?);
        }
        let authority = authority.as_mut().expect("it was just put there");
        let _hold = self.ports.vault.hold(self.server.as_str()).await?;
        // While we waited, another process may have done it.
        let held = self.newest().await?;
        if self.adopt_other(held.as_ref(), &wish) {
            return Ok(Outcome::Adopted);
        }
        match self.settings.flow {
            Flow::ClientCredentials => self.ask_for_itself(authority, wish).await,
            Flow::Person => match held {
                Some(held) => self.refresh(authority, held).await,
                None => Ok(Outcome::Nothing),
            },
        }
    }

    async fn refresh(&self, authority: &mut Authority, held: Grant) -> Result<Outcome, OAuthError> {
        // Tokens of another issuer are worth nothing here, and are not shown.
        if held.issuer.as_deref() != authority.issuer() {
            return Ok(Outcome::Nothing);
        }
        match authority.refresh(&held, self.ports.clock.now().wall).await {
            Ok(Obtained { tokens, scopes }) => {
                self.keep(Grant { tokens: Some(tokens), scopes, ..held }).await;
                Ok(Outcome::Renewed)
            }
            Err(NotRefreshed::Rejected) => {
                self.keep(Grant { tokens: None, ..held }).await;
                Ok(Outcome::Nothing)
            }
            Err(NotRefreshed::Failed(error)) => Err(error),
        }
    }

    async fn ask_for_itself(&self, authority: &mut Authority, wish: Wish) -> Result<Outcome, OAuthError> {
        let identity = &self.settings.identity;
        let Some(id) = identity.client_id.clone() else {
            let message = "a client that acts for itself needs `oauth.clientId`";
            return Err(OAuthError::Settings(message.to_owned()));
        };
        let client = Client { id, secret: identity.client_secret.clone() };
        let mut scopes = union(wish.scopes, &authority.scopes(&self.settings.scopes).await);
        // Nobody goes offline.
        scopes.retain(|scope| scope != "offline_access");
        let now = self.ports.clock.now().wall;
        let obtained = match &identity.client_key {
            Some(key) => authority.client_credentials_by_key(&client, key, &scopes, now).await?,
            None => authority.client_credentials(&client, &scopes, now).await?,
        };
        let issuer = authority.issuer().map(ToOwned::to_owned);
        self.keep(self.grant(issuer, client, obtained)).await;
        Ok(Outcome::Renewed)
    }

    /// Lets the person grant. `scopes` are asked for besides what the server and the settings say.
    pub(super) async fn login(
        self: &Arc<Self>,
        turn: &mut Turn,
        why: Why,
        challenge: Option<String>,
        scopes: Vec<String>,
    ) -> Result<Grant, OAuthError> {
        let Some(visit) = self.ports.person.prepare().await? else {
            self.remember_wish(&scopes).await;
            return Err(self.needs_person());
        };
        let mut authority = Authority::discover(&self.wire, &self.server, challenge.as_deref()).await?;
        let issuer = authority.issuer().map(ToOwned::to_owned);
        let held = self.newest().await?.filter(|held| held.issuer == issuer);
        // What was granted once is not lost by being asked again.
        let before = held.as_ref().filter(|_| why != Why::Asked).map(|held| held.scopes.clone());
        let mut asked = union(before.unwrap_or_default(), &authority.scopes(&self.settings.scopes).await);
        asked = union(asked, &scopes);
        asked = union(asked, &held.map(|held| held.wanted).unwrap_or_default());
        authority.add_offline_access(&mut asked);
        let redirect_uri = visit.redirect_uri();
        let client = self.client(turn, &mut authority, issuer.as_ref(), &redirect_uri, &asked).await?;
        let address = authority.authorization_address(&asked).await?;
        let state = state_of(&address).ok_or_else(|| {
            OAuthError::Metadata("its authorization address holds a `state` of its own".to_owned())
        })?;
        turn.asked.clone_from(&asked);
        let redirect = read(&visit.authorize(address).await?, &state)?;
        let this = Arc::clone(self);
        let task = tokio::spawn(async move {
            let now = this.ports.clock.now().wall;
            let obtained = authority.exchange(&redirect, &state, now).await?;
            let grant = this.grant(issuer, client, obtained);
            // A renewal under way in another process would put its own in the place of this one.
            let _hold = this.ports.vault.hold(&grant.server).await;
            this.keep(grant.clone()).await;
            Ok::<_, OAuthError>((authority, grant))
        });
        let (authority, grant) = task.await.map_err(|_| ended())??;
        turn.authority = Some(authority);
        Ok(grant)
    }

    /// Who we are to this issuer: as before if nothing has changed, else anew.
    async fn client(
        &self,
        turn: &mut Turn,
        authority: &mut Authority,
        issuer: Option<&String>,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<Client, OAuthError> {
        if let Some(known) = &turn.registered
            && known.issuer.as_ref() == issuer
            && known.redirect_uri == redirect_uri
        {
            authority.present(&known.client, redirect_uri)?;
            return Ok(known.client.clone());
        }
        let client = authority.identify(&self.settings.identity, redirect_uri, scopes).await?;
        turn.registered = Some(Registered {
            issuer: issuer.cloned(),
            redirect_uri: redirect_uri.to_owned(),
            client: client.clone(),
        });
        Ok(client)
    }

    fn grant(&self, issuer: Option<String>, client: Client, obtained: Obtained) -> Grant {
        let Obtained { tokens, scopes } = obtained;
        let server = self.server.to_string();
        Grant { server, issuer, client, tokens: Some(tokens), scopes, wanted: Vec::new() }
    }

    /// What the vault holds; or what it could not take.
    async fn newest(&self) -> Result<Option<Grant>, OAuthError> {
        if let Some(unsaved) = self.current(|current| current.grant.clone().filter(|_| current.is_unsaved)) {
            return Ok(Some(unsaved));
        }
        self.load().await
    }

    /// Takes over a token that another process has brought, if it will do.
    fn adopt_other(&self, held: Option<&Grant>, wish: &Wish) -> bool {
        let now = self.ports.clock.now().wall;
        let Some(held) = held.filter(|_| !wish.insist) else { return false };
        let will_do = held.tokens.as_ref().is_some_and(|tokens| {
            wish.used.as_ref() != Some(&tokens.access) && tokens.freshness(now) != Freshness::Expired
        });
        let will_do = will_do && wish.scopes.iter().all(|scope| held.scopes.contains(scope));
        if will_do {
            self.current(|current| current.adopt(held.clone()));
        }
        will_do
    }

    /// Uses a grant from now on, and keeps it. A vault that fails costs the next process a login, not
    /// this one.
    async fn keep(&self, grant: Grant) {
        let saved = self.ports.vault.save(grant.clone()).await;
        self.current(|current| {
            current.adopt(grant);
            current.is_unsaved = saved.is_err();
        });
        if let Err(error) = saved {
            self.log(format_args!("its token is kept in memory only: {error}"));
        }
    }

    /// So that the next login of a person asks for what is missing.
    async fn remember_wish(&self, scopes: &[String]) {
        let Some(held) = self.current(|current| current.grant.clone()) else { return };
        let missing: Vec<String> =
            scopes.iter().filter(|scope| !held.scopes.contains(scope)).cloned().collect();
        let wanted = union(held.wanted.clone(), &missing);
        if wanted == held.wanted {
            return;
        }
        let remembered = async {
            let _hold = self.ports.vault.hold(&held.server).await?;
            // Another process may have renewed the tokens; they are not put back.
            let Some(newest) = self.ports.vault.load(&held.server).await? else { return Ok(()) };
            self.ports.vault.save(Grant { wanted: wanted.clone(), ..newest }).await
        };
        if let Err(error) = remembered.await {
            self.log(format_args!("the scopes it demands are not remembered: {error}"));
        }
        self.current(|current| {
            if let Some(grant) = &mut current.grant {
                grant.wanted = wanted;
            }
        });
    }
}

fn ended() -> OAuthError {
    OAuthError::Person("colibri is ending".to_owned())
}
