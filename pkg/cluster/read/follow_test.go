package read

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/text"
)

// failing is a source of no objects that fails after the first list.
type failing struct{ lists *int }

func (f failing) ListWatch(runtime.Object, string, metav1.ListOptions) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if *f.lists++; *f.lists == 1 {
				return &corev1.NodeList{}, nil
			}
			return nil, &url.Error{Op: "Get", URL: "https://a/api/v1/nodes", Err: errors.New("away")}
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, errors.New("away")
		},
	}
}

// What was read before an API server went away is kept, and told to be old.
func TestFollowTellsWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var told []text.Unread
		Follow(ctx, failing{new(int)}, Nodes, "", cache.NewStore(cache.MetaNamespaceKeyFunc), func(u text.Unread) {
			if told = append(told, u); len(told) == 2 {
				end()
			}
		})
		assert.Equal(t, []text.Unread{Nodes.Unread(nil), {Verb: "list", Resource: "nodes", Message: "away", Consequence: "what is shown of nodes may be outdated"}}, told)
	})
}
