package partition

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// What a newer version wrote beside what this one knows stays with the profile that it is about.
func TestUnknownKeysAreKept(t *testing.T) {
	in, err := decodeJournal([]byte(`{"version": 2, "minReader": 1, "new": {"a": 1}, "applied": {"profile": {"profileName": "p", "source": "Label", "hash": "h", "more": 1}, "more": 2,
		"layouts": {"0000:01:00.0": {"partitioning": "Static", "more": 3, "static": [{"gpu": "0000:01:00.0", "type": "mig", "profile": "1g.10gb", "start": 3, "size": 1}]}}}}`))
	require.NoError(t, err)
	assert.Equal(t, "p", in.Applied.Snapshot.ProfileName)
	assert.Equal(t, static(ones(hopper, 3)...), in.Applied.Layouts[hopper])

	file := filepath.Join(memory.TempDir(t), "profile.json")
	to := resolvedProfile{Snapshot: v1beta1.ProfileSnapshot{Hash: "other"}}
	require.NoError(t, writeJournal(file, in.begin(to, nil).finish(to, nil)))
	in, err = readJournal(file)
	require.NoError(t, err)
	assert.Equal(t, durable.Unknown{"new": json.RawMessage(`{"a":1}`)}, in.unknown)
	assert.Empty(t, in.Applied.unknown)
	assert.Equal(t, durable.Unknown{"more": json.RawMessage("2")}, in.Previous.Applied.unknown)
}

// Every key of the file, as it stays.
func TestJournalFormat(t *testing.T) {
	var in journal
	filled.Value(&in)
	part := ones(hopper, 3)[0]
	layout := map[string]profile.Layout{hopper: {}}
	for _, r := range []*resolvedProfile{&in.Applied, in.Applying, &in.Previous.Applied} {
		filled.Value(r)
		r.Layouts = layout
	}
	full := in.Applied.Layouts[hopper]
	filled.Value(&full)
	full.Static = []gpu.Placement{part}
	layout[hopper] = full
	in.Layouts, in.Ours = layout, map[string][]gpu.Placement{hopper: {part}}
	file := filepath.Join(memory.TempDir(t), "profile.json")
	require.NoError(t, writeJournal(file, in))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	golden.JSON(t, "testdata/profile.json", data)
	again, err := readJournal(file)
	require.NoError(t, err)
	assert.Equal(t, in, again)
}

func TestBadIntents(t *testing.T) {
	const layout = `{"0000:01:00.0": {"static": [{"gpu": "0000:02:00.0", "type": "mig", "profile": "1g.10gb"}]}}`
	for name, tt := range map[string]struct{ data, want string }{
		"empty":               {"", "no valid JSON"},
		"not JSON":            {"profile: x", "no valid JSON"},
		"no version":          {"{}", "version is 0, minReader 0"},
		"a newer version":     {`{"version": 2}`, "read the applied profile, which is retried: it has version 2 and needs a plugin that reads version 2"},
		"another GPU's":       {`{"version": 1, "layouts": ` + layout + `}`, "layout of GPU 0000:01:00.0: gpu-0000-02-00-0-mig-1g-10gb-0 is not a partition of it"},
		"of what is applied":  {`{"version": 1, "applied": {"layouts": ` + layout + `}}`, "is not a partition of it"},
		"of what is to be":    {`{"version": 1, "applying": {"layouts": ` + layout + `}}`, "is not a partition of it"},
		"of what was":         {`{"version": 1, "previous": {"applied": {"layouts": ` + layout + `}}}`, "is not a partition of it"},
		"without a profile":   {`{"version": 1, "layouts": {"0000:01:00.0": {"static": [{"gpu": "0000:01:00.0", "type": "mig"}]}}}`, "is not a partition of it"},
		"of AMD":              {`{"version": 1, "layouts": {"0000:01:00.0": {"static": [{"gpu": "0000:01:00.0", "type": "xcp", "profile": "cpx"}]}}}`, "is not a partition of it"},
		"of what may be ours": {`{"version": 1, "ownPlacements": {"0000:01:00.0": [{"gpu": "0000:01:00.0", "type": "gpu"}]}}`, "gpu-0000-01-00-0 is not a partition of it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeJournal([]byte(tt.data))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// What is written is read again. A broken file is set aside; one of a newer version stays, and is neither
// used nor replaced.
func TestIntentSurvives(t *testing.T) {
	p, n := startPlace(t, hopper, mi300)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), mi300: {Compute: "CPX"}}))
	want := n.journal()
	got, err := readJournal(p.file)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	data, err := os.ReadFile(p.file)
	require.NoError(t, err)
	newer := strings.Replace(string(data), `"version":1,"minReader":1`, `"version":9,"minReader":9`, 1)
	require.NoError(t, os.WriteFile(p.file, []byte(newer), 0o600))
	later, err := OpenState(p.file)
	require.ErrorContains(t, err, "run the newer version of Tranche on this node again")
	assert.Empty(t, later.Applied())
	for _, s := range []*State{n.State, later} {
		require.ErrorAs(t, s.update(func(in journal) journal { return in }), new(*durable.NewerError))
		require.ErrorAs(t, s.Unread(), new(*durable.NewerError))
	}
	planned := n.Plan(t.Context(), p.profile("other", map[string]profile.Layout{}))
	assert.Equal(t, v1beta1.TaskFailed, planned.Phase, "nothing is drained for what cannot be applied")
	assert.Contains(t, planned.Message, "run the newer version of Tranche on this node again")
	assert.Equal(t, want.Applied.Snapshot, n.Applied(), "what is known stays")
	kept, err := os.ReadFile(p.file)
	require.NoError(t, err)
	assert.Equal(t, newer, string(kept))

	require.NoError(t, os.WriteFile(p.file, []byte("{"), 0o600))
	_, err = readJournal(p.file)
	require.ErrorContains(t, err, "no valid JSON")
	kept, err = os.ReadFile(p.file + brokenSuffix)
	require.NoError(t, err)
	assert.Equal(t, "{", string(kept))
}

// A journal that cannot be read now is read later, and not replaced before.
func TestUnreadableJournal(t *testing.T) {
	p, n := startPlace(t, hopper, mi300)
	to := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)})
	p.follow(n, to)
	require.NoError(t, os.Rename(p.file, p.file+".away"))
	require.NoError(t, os.Mkdir(p.file, 0o700)) // reading it fails, also for root
	again, err := OpenState(p.file)
	require.ErrorContains(t, err, "read the applied profile, which is retried")
	for _, n := range []*State{n.State, again} {
		require.ErrorAs(t, n.update(func(in journal) journal { return in }), new(*unreadError))
	}
	assert.Equal(t, to, n.Applied(), "what is known stays")
	assert.Empty(t, again.Applied())
	require.DirExists(t, p.file)

	require.NoError(t, os.Remove(p.file))
	require.NoError(t, os.Rename(p.file+".away", p.file))
	require.NoError(t, again.Unread())
	require.NoError(t, again.update(func(in journal) journal { return in }))
	for _, n := range []*State{n.State, again} {
		assert.Equal(t, to, n.Applied())
	}
}

// Each step is written down before it is taken.
func TestIntentComesFirst(t *testing.T) {
	p := newPlace(t, hopper, mi300)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0, 1)...)})
	n := p.start()
	p.hardware.before = func(call string) error {
		in, err := readJournal(p.file)
		require.NoError(t, err)
		require.Equal(t, w, in.Applying.Snapshot)
		require.Equal(t, v1beta1.ProfileSnapshot{}, in.Applied.Snapshot)
		require.Equal(t, ones(hopper, 0, 1), in.Ours[hopper])
		require.Equal(t, gpu.MIGOff, in.Before[hopper].MIG)
		if p, ok := strings.CutPrefix(call, "create "); ok {
			require.Equal(t, "create partition "+p, in.Step)
		}
		return nil
	}
	p.follow(n, w)
	assert.Empty(t, n.journal().Step)
}

func text(t *testing.T, in journal) string {
	data, err := journalFormat.Encode(in, in.unknown)
	require.NoError(t, err)
	return string(data)
}

// A file that nobody would write changes nothing but what the node follows, and
// cannot make the driver take what is another GPU's for its own.
func FuzzDecodeIntent(f *testing.F) {
	f.Add([]byte(`{"version": 1, "applied": {"profile": {"profileName": "p", "source": "Label", "hash": "h"}}, "more": 1}`))
	f.Add([]byte(`{"version": 1, "layouts": {"0000:01:00.0": {"partitioning": "Static", "static": [{"gpu": "0000:01:00.0", "type": "mig", "profile": "1g"}]}}, "ownPlacements": {"a": []}}`))
	f.Add([]byte(`{"version": 1, "applying": {"profile": {"hash": "x"}}, "modesBefore": {"0000:01:00.0": {"mig": "on"}}, "previous": {"modesBefore": {}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := decodeJournal(data)
		if err != nil {
			return
		}
		for gpuID := range in.Layouts {
			for _, p := range in.ours(gpuID) {
				require.Equal(t, gpuID, p.GPU)
				require.True(t, in.static(p))
			}
		}
		file := memory.TempDir(t) + "/profile.json"
		require.NoError(t, writeJournal(file, in))
		again, err := readJournal(file)
		require.NoError(t, err)
		require.Equal(t, text(t, in), text(t, again))
	})
}
