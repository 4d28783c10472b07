// Package signin guards the web page where it is served to many.
//
// A request has a token, in its header Authorization or in a cookie that the sign-in sets. The API
// server says whose it is (TokenReview), and what the user may list (SubjectAccessReview): the
// page shows no more. The answers are kept for seconds. Nothing is read with the user's rights,
// and nobody is impersonated. The requests that are under way are limited for each user and for each connection without one.
package signin
