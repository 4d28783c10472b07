package ledger

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/durable"
)

// version2 is a made-up next version of a record: it has a state and fields that
// version 1 does not know.
type version2 struct {
	Version   int               `json:"version"`
	MinReader int               `json:"minReader,omitempty"`
	Claim     ClaimRef          `json:"claim"`
	State     string            `json:"state"`
	Devices   []map[string]any  `json:"devices"`
	Network   map[string]string `json:"network"`
}

func newVersion2(uid string, minReader int, state string) version2 {
	return version2{
		Version: 2, MinReader: minReader, Claim: ClaimRef{UID: types.UID(uid), Namespace: "team", Name: "claim-" + uid}, State: state,
		Devices: []map[string]any{{
			"request": "r", "name": "gpu-0000-01-00-0-mig-1g-10gb-4", "uuid": "MIG-2", "made": true, "lane": 3,
			"placement": map[string]any{"gpu": "0000:01:00.0", "type": "mig", "profile": "1g.10gb", "start": 4, "size": 1},
		}},
		Network: map[string]string{"fabric": "f1"},
	}
}

func (v version2) write(t *testing.T, dir string) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	path := filepath.Join(dir, string(v.Claim.UID)+".json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// A record of a newer version that this one can use is used, and keeps what this
// version does not know when it is written again.
func TestNewerVersionThatCanBeUsed(t *testing.T) {
	dir := t.TempDir()
	path := newVersion2("a", 1, "Prepared").write(t, dir)
	l, broken := open(t, dir)
	require.Empty(t, broken)
	assert.Empty(t, l.Unusable())
	r, ok := l.Get("a")
	require.True(t, ok)
	assert.Equal(t, Prepared, r.State)
	assert.Equal(t, "MIG-2", r.Devices[0].UUID)

	fresh := Record{Claim: r.Claim, State: Preparing, Devices: []Device{
		{Request: "r", Name: "another", Placement: r.Devices[0].Placement},
		{Request: "r", Name: r.Devices[0].Name, Placement: r.Devices[0].Placement},
	}}
	fresh.KeepUnknown(r)
	for _, changed := range []Record{fresh, fresh.Clone()} {
		require.NoError(t, l.Put(changed))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var got version2
		require.NoError(t, json.Unmarshal(data, &got))
		assert.Equal(t, Format, durable.Format{Version: got.Version, MinReader: got.MinReader}, "who writes a record states its own version")
		assert.Equal(t, "Preparing", got.State)
		assert.Equal(t, map[string]string{"fabric": "f1"}, got.Network)
		assert.NotContains(t, got.Devices[0], "lane", "of another device")
		assert.InDelta(t, 3, got.Devices[1]["lane"], 0)
	}
	l, broken = open(t, dir)
	require.Empty(t, broken)
	r, _ = l.Get("a")
	require.NoError(t, l.Put(r))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"fabric":"f1"`, "also through a second plugin of this version")
}

// A record that only a newer version can use stays where it is: it is neither broken
// nor used.
func TestNewerVersionThatCannotBeUsed(t *testing.T) {
	for name, minReader := range map[string]int{"it says so": 2, "it says nothing": 0} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, _ := open(t, dir)
			require.NoError(t, l.Put(record("b")))
			path := newVersion2("a", minReader, "Paused").write(t, dir)
			before, err := os.ReadFile(path)
			require.NoError(t, err)

			l, broken := open(t, dir)
			require.Empty(t, broken)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after))
			assert.Equal(t, []Record{record("b")}, l.List())
			assert.True(t, l.Has("a"), "its claim is not forgotten")
			want := Unusable{Claim: ClaimRef{UID: "a", Namespace: "team", Name: "claim-a"}, Newer: &durable.NewerError{Version: 2, MinReader: 2, Reads: 1}, GPUs: []string{"0000:01:00.0"}}
			assert.Equal(t, []Unusable{want}, l.Unusable())

			newer := (*UnusableError)(nil)
			require.ErrorAs(t, l.CheckClaim("a"), &newer)
			assert.Equal(t, want, newer.Unusable)
			require.EqualError(t, newer, "the record of claim team/claim-a cannot be used: it has version 2 and needs a plugin that reads version 2, this one reads 1: run the newer version of Tranche on this node again")
			require.NoError(t, l.CheckClaim("b"))
			require.ErrorAs(t, l.CheckGPUs([]string{"0000:02:00.0", "0000:01:00.0"}), &newer)
			require.NoError(t, l.CheckGPUs([]string{"0000:02:00.0"}))
			require.ErrorAs(t, l.Check("a", nil), &newer)
			require.ErrorAs(t, l.Check("b", []string{"0000:01:00.0"}), &newer)
			require.NoError(t, l.Check("b", []string{"0000:02:00.0"}))

			require.NoError(t, os.Remove(path))
			refreshed, err := l.readAll()
			require.NoError(t, err)
			assert.Empty(t, refreshed)
			assert.Empty(t, l.Unusable(), "released by the newer version")
			assert.False(t, l.Has("a"))
		})
	}
}

// What such a record holds may be anything, if even that cannot be read.
func TestNewerVersionThatSaysNothing(t *testing.T) {
	for name, data := range map[string]string{
		"no devices":    `{"version":3,"claim":{"uid":"a"}}`,
		"another shape": `{"version":3,"claim":"a","devices":{"x":1}}`,
		"no GPU":        `{"version":3,"devices":[{"placement":{"gpu":"0000:01:00.0"}},{"placement":{}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(data), 0o600))
			l, broken := open(t, dir)
			require.Empty(t, broken)
			require.Len(t, l.Unusable(), 1)
			assert.Equal(t, types.UID("a"), l.Unusable()[0].Claim.UID, "the file is named for it")
			require.Error(t, l.CheckClaim("a"))
			require.Error(t, l.CheckGPUs([]string{"0000:07:00.0"}))
		})
	}
}
