//! Questions that the API server answers about others: whose token this is (TokenReview), and may that service account list
//! Secrets (SubjectAccessReview). Each has a time limit; nothing is kept here.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::KubeWriter;
use crate::sources::WriteError;

/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The API server's opinion of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenVerdict {
    /// It is a token of this service account.
    ServiceAccount {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
    /// It is refused, for this reason.
    Refused(String),
}

impl KubeWriter {
    /// Asks whose token this is; it has to be meant for one of these audiences (Istio's `tokenreview.ValidateK8sJwt`).
    ///
    /// # Errors
    /// [`WriteError`] when the server gives no answer, or refuses to answer.
    pub async fn review_token(&self, token: String, audiences: &[String]) -> Result<TokenVerdict, WriteError> {
        let api: Api<TokenReview> = Api::all(self.client().await?);
        let spec = TokenReviewSpec { token, audiences: Some(audiences.to_vec()) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.patient(async move { api.create(&PostParams::default(), &review).await }).await?;
        Ok(verdict(answer, audiences))
    }

    /// Asks whether a service account may list the Secrets of its namespace, as Istio asks for a gateway's
    /// credentials.
    ///
    /// # Errors
    /// [`WriteError`] when the server gives no answer, or refuses to answer.
    pub async fn may_list_secrets(&self, namespace: &str, service_account: &str) -> Result<bool, WriteError> {
        let api: Api<SubjectAccessReview> = Api::all(self.client().await?);
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("{SERVICE_ACCOUNT}{namespace}:{service_account}")),
                groups: Some(vec![SERVICE_ACCOUNTS.to_string(), format!("{SERVICE_ACCOUNTS}:{namespace}")]),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_string()),
                    resource: Some("secrets".to_string()),
                    verb: Some("list".to_string()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.patient(async move { api.create(&PostParams::default(), &review).await }).await?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

fn verdict(review: TokenReview, audiences: &[String]) -> TokenVerdict {
    let status = review.status.unwrap_or_default();
    let refused = |reason: &str| TokenVerdict::Refused(reason.to_string());
    if let Some(error) = status.error.filter(|error| !error.is_empty()) {
        return TokenVerdict::Refused(error);
    }
    if status.authenticated != Some(true) {
        return refused("it is not valid");
    }
    // A server that does not know audiences names none: its answer holds for its own audience only.
    let meant = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !audiences.iter().any(|audience| meant.contains(audience)) {
        return refused("it is not meant for this audience");
    }
    let user = status.user.unwrap_or_default();
    if !user.groups.unwrap_or_default().iter().any(|group| group == SERVICE_ACCOUNTS) {
        return refused("it is not a service account's");
    }
    let name = user.username.unwrap_or_default();
    match name.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':')) {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            TokenVerdict::ServiceAccount { namespace: namespace.to_string(), name: name.to_string() }
        }
        _ => refused("it is not a service account's"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

    use super::*;

    fn answer(name: &str, change: impl FnOnce(&mut TokenReviewStatus)) -> TokenVerdict {
        let user = UserInfo {
            username: Some(name.to_string()),
            groups: Some(vec![SERVICE_ACCOUNTS.to_string()]),
            ..UserInfo::default()
        };
        let mut status = TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec!["istio-ca".to_string()]),
            user: Some(user),
            ..TokenReviewStatus::default()
        };
        change(&mut status);
        verdict(TokenReview { status: Some(status), ..TokenReview::default() }, &["istio-ca".to_string()])
    }

    #[test]
    fn a_token_is_one_of_a_service_account_or_refused() {
        let account = TokenVerdict::ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        let name = "system:serviceaccount:shop:cart";
        assert_eq!(answer(name, |_| ()), account);
        let changes: [fn(&mut TokenReviewStatus); 5] = [
            |status| status.authenticated = Some(false),
            |status| status.error = Some("unknown".to_string()),
            |status| status.audiences = Some(vec!["https://kubernetes.default.svc".to_string()]),
            |status| status.audiences = None,
            |status| status.user.as_mut().unwrap().groups = None,
        ];
        for change in changes {
            assert!(matches!(answer(name, change), TokenVerdict::Refused(_)));
        }
        for other in
            ["system:serviceaccount:shop", "system:serviceaccount:shop:", "system:serviceaccount:a:b:c", "root"]
        {
            assert!(matches!(answer(other, |_| ()), TokenVerdict::Refused(_)), "{other}");
        }
        assert!(matches!(verdict(TokenReview::default(), &[]), TokenVerdict::Refused(_)));
    }
}
