package switchover

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// answersInTurn is an API server that says one after the other, and then ends the question.
type answersInTurn struct {
	all  []any
	next int
	end  context.CancelFunc
}

func (a *answersInTurn) ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if _, ok := ctx.Deadline(); !ok || groupVersion != "resource.k8s.io/v1" {
		return nil, errors.New("asked for something else, or for ever")
	}
	if a.next == len(a.all) {
		a.end()
		return nil, ctx.Err()
	}
	answer := a.all[a.next]
	a.next++
	if err, ok := answer.(error); ok {
		return nil, err
	}
	list := &metav1.APIResourceList{APIResources: []metav1.APIResource{{Kind: "ResourceClaim"}}}
	if answer == true {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: "DeviceTaintRule"})
	}
	return list, nil
}

func TestWhetherThereAreDeviceTaintRules(t *testing.T) {
	for _, tt := range []struct {
		answer any
		has    bool
		err    string
	}{
		{true, true, ""},
		{false, false, ""},
		{apierrors.NewNotFound(schema.GroupResource{}, "resource.k8s.io/v1"), false, ""},
		{errors.New("no route to host"), false, "ask the API server whether it has DeviceTaintRules: no route to host"},
	} {
		has, err := hasRules(t.Context(), &answersInTurn{all: []any{tt.answer}})
		assert.Equal(t, tt.has, has, tt.answer)
		if tt.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, tt.err)
		}
	}
}

// The controller starts anew when the API server says for sure that they have come or
// gone: not when it is away, nor while servers of two versions answer.
func TestDeviceTaintRulesThatComeAndGo(t *testing.T) {
	away, gone := errors.New("away"), apierrors.NewNotFound(schema.GroupResource{}, "")
	for name, tt := range map[string]struct {
		had     bool
		answers []any
		anew    bool
	}{
		"as before":          {true, []any{true, true, true, true}, false},
		"gone":               {true, []any{false, false, false}, true},
		"all of it is gone":  {true, []any{gone, gone, gone}, true},
		"come":               {false, []any{false, true, true, true}, true},
		"away":               {true, []any{away, away, away, away, away}, false},
		"away between":       {true, []any{false, away, false, away, false}, true},
		"two servers":        {true, []any{false, true, false, false, true, false, true}, false},
		"not for long":       {false, []any{true, true, false}, false},
		"none, and stays so": {false, []any{gone, false, gone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			a := &answersInTurn{all: tt.answers, end: end}
			err := (&rulesWatch{discovery: a, had: tt.had, every: time.Microsecond}).Start(ctx)
			if tt.anew {
				require.ErrorIs(t, err, ErrStartAnew)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, len(tt.answers), a.next)
		})
	}
}

// The program ends, by itself and without an error of another kind, and the next one
// works with what is there.
func TestTheManagerEndsWhenDeviceTaintRulesComeOrGo(t *testing.T) {
	w := newWorld(t)
	scheme, err := NewScheme()
	require.NoError(t, err)
	api := serveAPI(t, w)
	for _, gone := range []bool{false, true, false} {
		w.rulesGone.Store(gone)
		options := w.opts
		options.DeviceTaintRules, err = HasDeviceTaintRules(t.Context(), api)
		require.NoError(t, err)
		require.Equal(t, !gone, options.DeviceTaintRules)
		mgr, err := manager.New(api, manager.Options{
			Scheme: scheme, Cache: options.CacheOptions(), Logger: logr.Discard(),
			Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
			Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		})
		require.NoError(t, err)
		options.Registry, options.LookForRules = prometheus.NewRegistry(), time.Millisecond
		require.NoError(t, Setup(t.Context(), mgr, options))
		w.rulesGone.Store(!gone)
		require.ErrorIs(t, mgr.Start(t.Context()), ErrStartAnew)
	}
}

// Where there are none, the controller works all the same, and watches none.
func TestTheControllerWithoutDeviceTaintRules(t *testing.T) {
	w := newWorld(t)
	w.rulesGone.Store(true)
	n := w.addNode("node-a")
	w.profile("cpx")
	manage(t, w)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	until := func(profile string) {
		for end := time.Now().Add(30 * time.Second); !inProfile(profile)(w.gpuNode("node-a")); {
			<-tick.C
			n.plugin(w)
			require.True(t, time.Now().Before(end), "%+v", w.gpuNode("node-a").Status)
		}
	}
	until("")
	w.wants("node-a", "cpx")
	until("cpx")
	w.clean("node-a")
}

// A switch that is under way goes on in the other way of tainting, and takes back what
// the first has left.
func TestDeviceTaintRulesComeAndGoDuringASwitch(t *testing.T) {
	for name, had := range map[string]bool{"come": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.noRule = !had })
			w.addNode("node-a")
			w.profile("cpx")
			w.settled("node-a", "")
			w.pod("node-a", "web", cardA, cardA)
			w.wants("node-a", "cpx")
			w.run("node-a", time.Minute, is(v1alpha1.Draining))
			w.round("node-a")
			assert.Equal(t, had, len(w.rules()) > 0)
			assert.Equal(t, !had, hasNodeTaint(w.node("node-a")))

			w.noRule = had
			if had {
				for _, rule := range w.rules() { // they go with their kind
					require.NoError(t, w.api.Delete(t.Context(), &rule))
				}
			}
			w.startController()
			w.round("node-a")
			assert.Equal(t, !had, len(w.rules()) > 0)
			assert.Equal(t, had, hasNodeTaint(w.node("node-a")))
			w.run("node-a", time.Minute, inProfile("cpx"))
			w.clean("node-a")
		})
	}
}
