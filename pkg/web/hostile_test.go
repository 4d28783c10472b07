package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// hostile is in every string of the cluster. It has no slash, so it can be a name in a path.
const hostile = `javascript:alert(0)"'><script>alert(1)<a href=javascript:alert(2) onclick=alert(3) style=top:0>&lt;`

// fill sets everything in a value: strings to hostile, lists to two elements, conditions to yes.
func fill(v reflect.Value, yes bool) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(yes)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Float64:
		v.SetFloat(3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), yes)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), yes)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, yes)
		fill(value, yes)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), yes)
			}
		}
	}
}

// filled is a value that fill has set.
func filled[T any](yes bool) T {
	var out T
	fill(reflect.ValueOf(&out).Elem(), yes)
	return out
}

// enemy is a cluster in which everything is hostile.
type enemy struct{ yes bool }

func (e enemy) Snapshot() *overview.Snapshot {
	s := filled[overview.Snapshot](e.yes)
	s.Complete, s.Partial = true, false
	for i, state := range []v1beta1.State{v1beta1.Draining, v1beta1.Failed} {
		n := s.Nodes[i]
		n.Profile.State = state
		n.Cordoned, n.Ready = false, nil // so that there is room
		for j := range n.GPUs {
			for k := range n.GPUs[j].Held {
				n.GPUs[j].Held[k].Holders[1].Hidden = false
				n.GPUs[j].Held[k].Holders[1].Pods = nil
			}
		}
	}
	s.Kinds[0].Label = strings.ToLower(hostile) // as it is looked for
	return &s
}

func (enemy) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

func (e enemy) Node(string) (map[string]overview.Usage, error) {
	u := filled[overview.Usage](e.yes)
	for i := range u.Series {
		u.Series[i].Text = func(float64) string { return hostile }
	}
	u.ByClaim = map[string]string{strings.Join([]string{hostile, hostile, hostile}, "/"): hostile}
	return map[string]overview.Usage{hostile: u}, errors.New(hostile)
}

// use is the enemy's Usage.
type use struct{ enemy }

func (use) Subscribe(string) (<-chan struct{}, func()) { return nil, func() {} }

func (e enemy) server(t *testing.T) *Server {
	s, err := New(Options{
		Base: "/base", Source: e, Usage: use{e}, Now: func() time.Time { return now }, User: func(*http.Request) string { return hostile },
		Why: func(context.Context, overview.Viewer, string, string) (*why.Explanation, error) {
			out := filled[why.Explanation](e.yes)
			out.Nodes[0].Verdict = fit.Fits
			return &out, nil
		},
	})
	require.NoError(t, err)
	return s
}

// Whatever a tenant, a node or a component writes, pages show it as text, and link to no other
// place.
func TestNothingHostileGetsOut(t *testing.T) {
	name := url.PathEscape(hostile)
	for _, yes := range []bool{true, false} {
		s := enemy{yes}.server(t)
		for _, path := range []string{
			"/", "/nodes/" + name, "/nodes/" + name + "/" + name, "/pending", "/pending/" + name + "/" + name,
			"/rollouts", "/fits?profile=" + url.QueryEscape(hostile), "/" + name, "/nodes/nobody?x=" + url.QueryEscape(hostile),
		} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/base"+path, nil))
			if count := harmlessPage(t, path, w.Body); w.Code == http.StatusOK {
				assert.Positive(t, count, path)
			} else {
				assert.Equal(t, http.StatusNotFound, w.Code, path)
			}
		}
		w := httptest.NewRecorder()
		s.SignIn(w, httptest.NewRequest(http.MethodGet, "/base/", nil), hostile, hostile)
		assert.Positive(t, harmlessPage(t, "sign in", w.Body))
	}
}

// harmlessPage counts how often a page has the hostile text.
func harmlessPage(t *testing.T, path string, page io.Reader) int {
	doc, err := html.Parse(page)
	require.NoError(t, err)
	count := 0
	for n := range doc.Descendants() {
		harmless(t, path, n)
		if n.Type == html.TextNode {
			count += strings.Count(strings.ToLower(n.Data), strings.ToLower(hostile))
		}
	}
	return count
}

// plainAttributes are those whose value cannot do harm.
var plainAttributes = regexp.MustCompile(`^(aria-[a-z]+|autocomplete|autofocus|charset|class|content|cx|cy|d|data-(base|block|copy|items|live|path|s|since|state)|defer|for|height|id|lang|list|` +
	`method|name|open|pathlength|placeholder|points|preserveaspectratio|r|rel|required|role|rowspan|spellcheck|stroke-dasharray|tabindex|title|type|value|viewbox|width|x|x1|x2|y|y1|y2|alt)$`)

// leads are attributes that lead to places of the page.
var leads = []string{"href", "src", "action", "data-why"}

// harmless reports whether an element is one of ours.
func harmless(t *testing.T, path string, n *html.Node) {
	script := false
	for _, a := range n.Attr {
		key := strings.ToLower(a.Key)
		if slices.Contains(leads, key) {
			script = script || strings.HasPrefix(a.Val, "/base/assets/")
			u, err := url.Parse(a.Val)
			if assert.NoError(t, err, path) {
				assert.True(t, u.Host == "" && u.Scheme == "" && (strings.HasPrefix(a.Val, "/base/") || a.Val == "#main"), "%s: %s", path, a.Val)
			}
			continue
		}
		assert.Regexp(t, plainAttributes, key, path)
	}
	if n.Type == html.ElementNode && n.Data == "script" {
		assert.True(t, script && n.FirstChild == nil, "%s: a script", path)
	}
	assert.False(t, n.Type == html.ElementNode && slices.Contains([]string{"style", "iframe", "object", "embed", "base"}, n.Data), "%s: %s", path, n.Data)
}
