package partition

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// A reader of an older or a newer version leaves what it does not know.
func TestUnknownFieldsAreLeft(t *testing.T) {
	in, err := decodeJournal([]byte(`{"version": 1, "new": {"a": 1}, "applied": {"wish": {"profile": "p", "source": "Label", "hash": "h", "more": 1},
		"shapes": {"0000:01:00.0": {"cut": "Static", "more": 2, "layout": [{"gpu": "0000:01:00.0", "type": "mig", "profile": "1g.10gb", "start": 3, "size": 1}]}}}}`))
	require.NoError(t, err)
	assert.Equal(t, "p", in.Applied.Snapshot.ProfileName)
	assert.Equal(t, static(ones(hopper, 3)...), in.Applied.Layouts[hopper])
}

func TestBadIntents(t *testing.T) {
	const layout = `{"0000:01:00.0": {"layout": [{"gpu": "0000:02:00.0", "type": "mig", "profile": "1g.10gb"}]}}`
	for name, tt := range map[string]struct{ data, want string }{
		"empty":               {"", "no valid JSON"},
		"not JSON":            {"profile: x", "no valid JSON"},
		"no version":          {"{}", "version is 0, this driver knows 1 to 1"},
		"a newer version":     {`{"version": 2}`, "version is 2"},
		"another GPU's":       {`{"version": 1, "shapes": ` + layout + `}`, "layout of GPU 0000:01:00.0: gpu-0000-02-00-0-mig-1g-10gb-0 is not a partition of it"},
		"of what is applied":  {`{"version": 1, "applied": {"shapes": ` + layout + `}}`, "is not a partition of it"},
		"of what is to be":    {`{"version": 1, "applying": {"shapes": ` + layout + `}}`, "is not a partition of it"},
		"of what was":         {`{"version": 1, "last": {"shapes": ` + layout + `}}`, "is not a partition of it"},
		"of what may be ours": {`{"version": 1, "ours": {"0000:01:00.0": [{"gpu": "0000:01:00.0", "type": "gpu"}]}}`, "gpu-0000-01-00-0 is not a partition of it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeJournal([]byte(tt.data))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// What is written is read again, and a broken one of a newer driver is kept.
func TestIntentSurvives(t *testing.T) {
	p, n := startPlace(t, hopper, mi300)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), mi300: {Compute: "CPX"}}))
	want := n.journal()
	want.Version = journalVersion
	got, err := readJournal(p.file)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	data, err := os.ReadFile(p.file)
	require.NoError(t, err)
	newer := strings.Replace(string(data), `"version":1`, `"version":9`, 1)
	require.NoError(t, os.WriteFile(p.file, []byte(newer), 0o600))
	_, err = readJournal(p.file)
	require.ErrorContains(t, err, "version is 9, this driver knows 1 to 1")
	kept, err := os.ReadFile(p.file + brokenSuffix)
	require.NoError(t, err)
	assert.Equal(t, newer, string(kept))
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
	data, err := json.Marshal(in)
	require.NoError(t, err)
	return string(data)
}

// A file that nobody would write changes nothing but what the node follows, and
// cannot make the driver take what is another GPU's for its own.
func FuzzDecodeIntent(f *testing.F) {
	f.Add([]byte(`{"version": 1, "applied": {"wish": {"profile": "p", "source": "Label", "hash": "h"}}}`))
	f.Add([]byte(`{"version": 1, "shapes": {"0000:01:00.0": {"cut": "Static", "layout": [{"gpu": "0000:01:00.0", "type": "mig", "profile": "1g"}]}}, "ours": {"a": []}}`))
	f.Add([]byte(`{"version": 1, "applying": {"wish": {"hash": "x"}}, "before": {"0000:01:00.0": {"mig": "on"}}, "last": {"before": {}}}`))
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
		in.Version = journalVersion
		require.Equal(t, text(t, in), text(t, again))
	})
}
