package read

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/text"
)

// answers is a source that lists pods.
type answers func(metav1.ListOptions) (*corev1.PodList, error)

func (a answers) ListWatch(_ runtime.Object, _ string, only metav1.ListOptions) cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.FieldSelector = only.FieldSelector
		return a(o)
	}}
}

// pods is a page of a list.
func pods(next string, names ...string) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: next}}
	for _, name := range names {
		l.Items = append(l.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return l
}

func TestListStartsAgainWhenThePlaceIsForgotten(t *testing.T) {
	got, err := All[corev1.Pod](t.Context(), answers(func(o metav1.ListOptions) (*corev1.PodList, error) {
		switch {
		case o.Continue != "":
			return nil, apierrors.NewResourceExpired("too old")
		case o.Limit == 0:
			return pods("", "a", "b", "c"), nil
		}
		return pods("more", "a", "b"), nil
	}), "")
	require.NoError(t, err)
	assert.Len(t, got, 3)

	_, err = All[corev1.Pod](t.Context(), answers(func(metav1.ListOptions) (*corev1.PodList, error) { return nil, errors.New("away") }), "")
	require.EqualError(t, err, "away")
}

// A thousand nodes and more come in pages.
func TestListReadsManyPages(t *testing.T) {
	const all = 2300
	asked := 0
	got, err := List[corev1.Pod](t.Context(), answers(func(o metav1.ListOptions) (*corev1.PodList, error) {
		asked++
		assert.Equal(t, "x=y", o.FieldSelector)
		from := 0
		if o.Continue != "" {
			var err error
			from, err = strconv.Atoi(o.Continue)
			require.NoError(t, err)
		}
		to := min(all, from+int(o.Limit))
		page := pods("")
		if to < all {
			page.Continue = strconv.Itoa(to)
		}
		for i := from; i < to; i++ {
			page.Items = append(page.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
		}
		return page, nil
	}), "", metav1.ListOptions{FieldSelector: "x=y"})
	require.NoError(t, err)
	assert.Len(t, got, all)
	assert.Equal(t, 5, asked, "pages of 500")
}

func TestUnread(t *testing.T) {
	assert.Equal(t, "no route to host", Reason("list", &url.Error{Op: "Get", URL: "https://a/api/v1/nodes", Err: errors.New("no route to host")}))
	assert.Equal(t, "no", Reason("list", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: "no"}}), "of a proxy")
	assert.Empty(t, Pods.within("").Message)
	assert.Equal(t, text.Unread{
		Verb: "list", Resource: "resourceclaims.resource.k8s.io", Message: "you are allowed to list resourceclaims.resource.k8s.io in the namespace a only",
		Consequence: "holders in other namespaces and free capacity are not shown",
	}, Claims.within("a"))
}

// byNamespace is a source of one pod for each namespace, named after it, or of what has failed there.
type byNamespace map[string]error

func (b byNamespace) ListWatch(_ runtime.Object, namespace string, _ metav1.ListOptions) cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return pods("", "of "+namespace), b[namespace]
	}}
}

func TestInto(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "x")
	away := errors.New("away")
	optional, ofCluster := Pods, Pods
	optional.Optional, ofCluster.Elsewhere = true, ""
	const refused = "you are not allowed to list pods"
	for name, tt := range map[string]struct {
		kind     Kind
		fallback string
		fails    byNamespace
		pods     string
		message  string
		err      error
	}{
		"all namespaces":    {Pods, "a", nil, "of ", "", nil},
		"one namespace":     {Pods, "a", byNamespace{"": forbidden}, "of a", "you are allowed to list pods in the namespace a only", nil},
		"none":              {Pods, "a", byNamespace{"": forbidden, "a": forbidden}, "", refused, nil},
		"without fallback":  {Pods, "", byNamespace{"": forbidden}, "", refused, nil},
		"of the cluster":    {ofCluster, "a", byNamespace{"": forbidden}, "", refused, nil},
		"not served":        {optional, "a", byNamespace{"": absent}, "", "", nil},
		"it must be served": {Pods, "a", byNamespace{"": absent}, "", `pods "x" not found`, absent},
		"no answer":         {Pods, "a", byNamespace{"": away}, "", "away", away},
	} {
		t.Run(name, func(t *testing.T) {
			all := []corev1.Pod{{}}
			unread, err := Into(t.Context(), tt.fails, tt.kind, tt.fallback, &all)
			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.message, unread.Message)
			if tt.pods == "" {
				assert.Nil(t, all)
				return
			}
			require.Len(t, all, 1)
			assert.Equal(t, tt.pods, all[0].Name)
		})
	}
	rules, err := TaintRules(t.Context(), byNamespace{"": absent})
	require.NoError(t, err)
	assert.Empty(t, rules)
	_, err = TaintRules(t.Context(), byNamespace{"": away})
	require.ErrorIs(t, err, away)
}
