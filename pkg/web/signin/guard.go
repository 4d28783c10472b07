package signin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/web"
)

const (
	// cookie keeps the token. Browsers send it over TLS, to this host and no other site only.
	cookie = "__Host-tranche-token"
	// known and unknown are how long an answer of the API server holds: a token that is revoked
	// ends within known.
	known, unknown = 30 * time.Second, 5 * time.Second
	// patience is how long the API server may take.
	patience = 10 * time.Second
	// mostKept is how many answers are kept, mostAsked how many questions are under way at once,
	// longest how long a token can be.
	mostKept, mostAsked, longest = 4096, 16, 16 << 10
)

// Guard lets users of the cluster see the page.
type Guard struct {
	kubernetes kubernetes.Interface
	page       *web.Server
	tokens     *cache.LRUExpireCache
	access     *cache.LRUExpireCache
	asking     chan struct{}
	origin     *http.CrossOriginProtection
}

// New returns a guard. Its Viewer and User are for the options of the page that Serve gets.
func New(k kubernetes.Interface) *Guard {
	return &Guard{
		kubernetes: k, tokens: cache.NewLRUExpireCache(mostKept), access: cache.NewLRUExpireCache(mostKept),
		asking: make(chan struct{}, mostAsked), origin: http.NewCrossOriginProtection(),
	}
}

// Handler guards a page.
func (g *Guard) Handler(page *web.Server) http.Handler {
	g.page = page
	return g.origin.Handler(http.HandlerFunc(g.serve))
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request) {
	web.Protect(w.Header())
	w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	switch {
	case strings.HasPrefix(r.URL.Path, "/assets/"): // the page to sign in needs them
		g.page.ServeHTTP(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/login":
		g.signIn(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/logout":
		http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		g.servePage(w, r)
	}
}

func (g *Guard) servePage(w http.ResponseWriter, r *http.Request) {
	_, err := g.user(r.Context(), tokenOf(r))
	switch {
	case errors.Is(err, errUnknown) && (r.URL.Path == "/live" || r.URL.Query().Has("answer")):
		http.Error(w, "sign in first", http.StatusUnauthorized)
	case errors.Is(err, errUnknown):
		g.page.SignIn(w, r, r.URL.RequestURI(), "")
	case err != nil:
		http.Error(w, "the API server could not be asked who you are", http.StatusServiceUnavailable)
	default:
		g.page.ServeHTTP(w, r)
	}
}

// signIn keeps a token in a cookie if the API server knows it.
func (g *Guard) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longest+4096)
	token, to := strings.TrimSpace(r.PostFormValue("token")), local(r.PostFormValue("to"))
	_, err := g.user(r.Context(), token)
	switch {
	case errors.Is(err, errUnknown):
		g.page.SignIn(w, r, to, "The API server does not accept this token. It may have expired.")
	case err != nil:
		g.page.SignIn(w, r, to, "The API server could not be asked about the token. Try again.")
	default:
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: url.QueryEscape(token), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
}

// local is a path of this page, whatever is asked for.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Path, '\\') {
		return "/"
	}
	return u.RequestURI()
}

// tokenOf is the token of a request: of a proxy that signs users in, or of the cookie.
func tokenOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token)
	}
	if c, err := r.Cookie(cookie); err == nil {
		if token, err := url.QueryUnescape(c.Value); err == nil {
			return token
		}
	}
	return ""
}

// errUnknown: the API server does not know the token.
var errUnknown = errors.New("unknown token")

// user asks the API server whose token it is.
func (g *Guard) user(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if token == "" || len(token) > longest {
		return nil, errUnknown
	}
	key := sha256.Sum256([]byte(token))
	if v, ok := g.tokens.Get(key); ok {
		if user, ok := v.(*authenticationv1.UserInfo); ok && user != nil {
			return user, nil
		}
		return nil, errUnknown
	}
	ctx, done, err := g.ask(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err = g.kubernetes.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a TokenReview: %w", err)
	}
	if !review.Status.Authenticated {
		g.tokens.Add(key, (*authenticationv1.UserInfo)(nil), unknown)
		return nil, errUnknown
	}
	g.tokens.Add(key, &review.Status.User, known)
	return &review.Status.User, nil
}

// ask waits until few enough questions are under way.
func (g *Guard) ask(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	select {
	case g.asking <- struct{}{}:
		return ctx, func() { <-g.asking; cancel() }, nil
	case <-ctx.Done():
		cancel()
		return ctx, nil, ctx.Err()
	}
}
