//! Why TLS failed, in words for errors and log lines.

use rustls::{AlertDescription as Alert, CertificateError as Bad, Error};

/// A reason for [`Closed::ByProtocol`](tidewire::Closed::ByProtocol).
pub(crate) fn why(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(bad) => certificate(bad),
        Error::NoCertificatesPresented => "the peer sent no certificate, and one is required",
        Error::AlertReceived(alert) => told(*alert),
        Error::NoApplicationProtocol => "no application protocol in common",
        Error::PeerIncompatible(_) => "no TLS version or cipher in common",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "not TLS, or broken",
        Error::InappropriateHandshakeMessage { .. } => "a TLS handshake out of order",
        Error::DecryptError => "a TLS record that was damaged or forged",
        Error::PeerSentOversizedRecord => "a TLS record larger than allowed",
        Error::PeerMisbehaved(_) => "the peer breaks the rules of TLS",
        _ => "TLS failed",
    }
}

fn certificate(bad: &Bad) -> &'static str {
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => "the peer's certificate has expired",
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "the peer's certificate is not valid yet"
        }
        Bad::UnknownIssuer => "the authority that signed the peer's certificate is not trusted",
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "the peer's certificate is for another name"
        }
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
            "the peer's certificate is for another purpose"
        }
        Bad::Revoked => "the peer's certificate was revoked",
        Bad::BadSignature => "the peer's certificate is signed wrongly",
        Bad::BadEncoding => "the peer's certificate cannot be read",
        // rustls has no variant for this one, the most frequent mistake with a certificate made for a trial.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the peer's certificate is an authority's own, which no server may use: make one that the authority signs"
        }
        _ => "the peer's certificate fails a check",
    }
}

/// The meaning of the peer's last alert.
fn told(alert: Alert) -> &'static str {
    match alert {
        Alert::UnknownCA => "the peer does not trust the authority of our certificate",
        Alert::CertificateExpired => "the peer says that our certificate has expired",
        Alert::CertificateRequired => "the peer requires a client certificate, and none was sent",
        Alert::BadCertificate | Alert::UnsupportedCertificate | Alert::CertificateUnknown => {
            "the peer does not accept our certificate"
        }
        Alert::CertificateRevoked => "the peer says that our certificate was revoked",
        Alert::AccessDenied => "the peer denies us access",
        Alert::UnrecognisedName => "the peer does not know the server name asked for",
        Alert::NoApplicationProtocol => "the peer has no application protocol in common with us",
        Alert::ProtocolVersion | Alert::InsufficientSecurity | Alert::HandshakeFailure => {
            "the peer has no TLS version or cipher in common with us"
        }
        Alert::UserCanceled => "the peer has changed its mind",
        _ => "the peer ended TLS with an alert",
    }
}
