package controller

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// profileServer is an API server with PartitionProfiles, and two folders of files.
type profileServer struct {
	*ChartProfiles
	t      *testing.T
	writes int
	// fail is the error of the next writes of a profile, by name.
	fail map[string]error
}

func newProfileServer(t *testing.T) *profileServer {
	scheme := runtime.NewScheme()
	require.NoError(t, v1beta1.AddToScheme(scheme))
	s := &profileServer{t: t, fail: map[string]error{}}
	s.ChartProfiles = &ChartProfiles{Dirs: []string{t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")}}
	write := func(o client.Object) error {
		s.writes++
		if p, ok := o.(*v1beta1.PartitionProfile); ok {
			p.Spec.Default() // as the API server does
		}
		return s.fail[o.GetName()]
	}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return cmp.Or(s.fail["list"], c.List(ctx, l, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := write(o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := write(o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	return s
}

// file writes a profile of so many replicas into a folder.
func (s *profileServer) file(dir int, name, replicas string) {
	s.t.Helper()
	text := "apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: " + name + "}\nspec: {rules: [{sharing: {replicas: " + replicas + "}}]}\n"
	require.NoError(s.t, os.WriteFile(filepath.Join(s.Dirs[dir], name+".yaml"), []byte(text), 0o600))
}

// sync says how many writes a look took.
func (s *profileServer) sync(want string) int {
	s.t.Helper()
	before := s.writes
	err := s.Sync(s.t.Context())
	if want == "" {
		require.NoError(s.t, err)
	} else {
		require.ErrorContains(s.t, err, want)
	}
	return s.writes - before
}

// replicas are those of all profiles by name.
func (s *profileServer) replicas() map[string]int {
	s.t.Helper()
	var list v1beta1.PartitionProfileList
	require.NoError(s.t, s.Client.List(s.t.Context(), &list))
	found := map[string]int{}
	for _, p := range list.Items {
		found[p.Name] = int(*p.Spec.Rules[0].Sharing.Replicas)
	}
	return found
}

func (s *profileServer) get(name string) *v1beta1.PartitionProfile {
	s.t.Helper()
	var p v1beta1.PartitionProfile
	require.NoError(s.t, s.Client.Get(s.t.Context(), client.ObjectKey{Name: name}, &p))
	return &p
}

func TestProfilesFollowTheirFiles(t *testing.T) {
	s := newProfileServer(t)
	assert.Zero(t, s.sync(""))
	s.file(0, "a", "2")
	s.file(1, "a", "9")
	s.file(1, "b", "3")
	require.NoError(t, os.Mkdir(filepath.Join(s.Dirs[0], "..data"), 0o700))
	assert.Equal(t, 2, s.sync(""))
	assert.Equal(t, map[string]int{"a": 2, "b": 3}, s.replicas(), "the first folder wins")
	assert.Zero(t, s.sync(""), "nothing has changed")

	s.file(1, "b", "4")
	assert.Equal(t, 1, s.sync(""))
	assert.Equal(t, map[string]int{"a": 2, "b": 4}, s.replicas())

	require.NoError(t, os.Remove(filepath.Join(s.Dirs[0], "a.yaml")))
	assert.Equal(t, 1, s.sync(""))
	assert.Equal(t, map[string]int{"a": 9, "b": 4}, s.replicas(), "the other folder's")

	require.NoError(t, os.Remove(filepath.Join(s.Dirs[1], "b.yaml")))
	assert.Equal(t, 1, s.sync(""))
	assert.Equal(t, map[string]int{"a": 9}, s.replicas())
}

func TestEditsAreUndone(t *testing.T) {
	s := newProfileServer(t)
	s.file(0, "a", "2")
	s.sync("")
	edited := s.get("a")
	*edited.Spec.Rules[0].Sharing.Replicas = 7
	edited.Annotations = map[string]string{"note": "mine"}
	require.NoError(t, s.Client.Update(t.Context(), edited))
	s.sync("")
	assert.Equal(t, map[string]int{"a": 2}, s.replicas())
	assert.Equal(t, "mine", s.get("a").Annotations["note"])

	require.NoError(t, s.Client.Delete(t.Context(), s.get("a")))
	s.sync("")
	assert.Equal(t, map[string]int{"a": 2}, s.replicas())
}

// A person's profile stays, with a file of its name and without.
func TestProfilesOfPeopleAreLeftAlone(t *testing.T) {
	s := newProfileServer(t)
	s.file(0, "a", "2")
	s.sync("")
	theirs := s.get("a")
	theirs.Labels = nil
	*theirs.Spec.Rules[0].Sharing.Replicas = 7
	require.NoError(t, s.Client.Update(t.Context(), theirs))
	assert.Zero(t, s.sync(""))
	require.NoError(t, os.Remove(filepath.Join(s.Dirs[0], "a.yaml")))
	assert.Zero(t, s.sync(""))
	assert.Equal(t, map[string]int{"a": 7}, s.replicas())
}

func TestWrongFilesHoldUpNoOther(t *testing.T) {
	s := newProfileServer(t)
	s.file(0, "a", "2")
	s.sync("")
	s.file(0, "a", "0")
	s.file(0, "b", "3")
	s.file(1, "c", "1")
	require.NoError(t, os.Rename(filepath.Join(s.Dirs[1], "c.yaml"), filepath.Join(s.Dirs[1], "d.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(s.Dirs[1], "e.yaml"), 0o700))
	s.sync("a.yaml: spec.rules[0].sharing.replicas: is 0, it can be 1 to 1000")
	s.sync("d.yaml: metadata.name: is c, it must be d, as the file is named")
	s.sync("e.yaml: is a directory")
	assert.Equal(t, map[string]int{"a": 2, "b": 3}, s.replicas(), "what was made before stays")
}

func TestServerThatRefuses(t *testing.T) {
	s := newProfileServer(t)
	s.file(0, "a", "2")
	s.file(0, "b", "2")
	s.fail["list"] = errors.New("refused")
	assert.Zero(t, s.sync("listing PartitionProfiles: refused"))
	delete(s.fail, "list")
	s.fail["a"] = errors.New("refused")
	s.sync("creating PartitionProfile a: refused")
	assert.Equal(t, map[string]int{"b": 2}, s.replicas())
	s.fail["b"] = errors.New("refused")
	s.file(0, "b", "3")
	s.sync("updating PartitionProfile b: refused")
	require.NoError(t, os.Remove(filepath.Join(s.Dirs[0], "b.yaml")))
	s.sync("deleting PartitionProfile b: refused")
	clear(s.fail)
	s.sync("")
	assert.Equal(t, map[string]int{"a": 2}, s.replicas())
}

func TestStartKeepsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProfileServer(t)
		s.file(0, "a", "2")
		s.fail["a"] = errors.New("refused")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Start(ctx) }()
		synctest.Wait()
		clear(s.fail)
		time.Sleep(profilesRetry - time.Millisecond)
		synctest.Wait()
		assert.Empty(t, s.replicas())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Len(t, s.replicas(), 1)
		s.file(0, "b", "2")
		time.Sleep(profilesInterval - time.Millisecond)
		synctest.Wait()
		assert.Len(t, s.replicas(), 1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Len(t, s.replicas(), 2)
		cancel()
		require.NoError(t, <-done)
		assert.True(t, s.NeedLeaderElection())
	})
}
