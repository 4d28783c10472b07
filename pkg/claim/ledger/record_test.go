package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
)

func TestDecode(t *testing.T) {
	data, err := Encode(record("a"))
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	assert.Equal(t, record("a"), got)

	// A newer driver may add fields without a new version.
	got, err = Decode([]byte(`{"version":1,"claim":{"uid":"a","color":"red"},"state":"Preparing","shares":[1],
		"devices":[{"name":"d","placement":{"gpu":"0000:01:00.0","shape":"round"},"limit":5}]}`))
	require.NoError(t, err)
	assert.Equal(t, Preparing, got.State)
	assert.Equal(t, "d", got.Devices[0].Name)
}

func TestDecodeRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ data, message string }{
		"nothing":          {``, "no valid record: no valid JSON"},
		"null":             {`null`, "version is 0"},
		"a list":           {`[]`, "no valid JSON"},
		"no version":       {`{"claim":{"uid":"a"},"state":"Prepared"}`, "version is 0, minReader 0: neither can be less than 1"},
		"no such reader":   {`{"version":2,"minReader":-1,"claim":{"uid":"a"},"state":"Prepared"}`, "minReader -1"},
		"no claim":         {`{"version":1,"state":"Prepared"}`, "claim.uid is missing"},
		"no state":         {`{"version":1,"claim":{"uid":"a"}}`, `state is "", not Preparing or Prepared`},
		"an unknown state": {`{"version":1,"claim":{"uid":"a"},"state":"Done"}`, `state is "Done"`},
		"device, no name":  {`{"version":1,"claim":{"uid":"a"},"state":"Prepared","devices":[{"placement":{"gpu":"x"}}]}`, "devices[0] has no name or no GPU"},
		"device, no GPU":   {`{"version":1,"claim":{"uid":"a"},"state":"Prepared","devices":[{"name":"d"}]}`, "devices[0] has no name or no GPU"},
		"share, no amount": {`{"version":1,"claim":{"uid":"a"},"state":"Prepared","devices":[{"name":"d","placement":{"gpu":"x","share":{"of":"gpu","unit":"Memory"}}}]}`, "devices[0] is a share without an amount"},
		"a wrong type":     {`{"version":"1"}`, "no valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(tt.data))
			require.ErrorContains(t, err, tt.message)
			assert.Equal(t, Record{}, got)
		})
	}
}

// Whatever is in a file, it is either refused or means the same when it is
// written back.
func FuzzDecode(f *testing.F) {
	data, err := Encode(record("a"))
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1,"claim":{"uid":"a"},"state":"Preparing"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			assert.Equal(t, Record{}, r)
			return
		}
		again, err := Encode(r)
		require.NoError(t, err)
		got, err := Decode(again)
		require.NoError(t, err)
		twice, err := Encode(got)
		require.NoError(t, err)
		assert.JSONEq(t, string(again), string(twice))
		assert.NotEmpty(t, got.Claim.UID)
	})
}

// Every key of a record, as it stays.
func TestRecordFormat(t *testing.T) {
	var r Record
	filled.Value(&r)
	r.State = Prepared
	data, err := Encode(r)
	require.NoError(t, err)
	golden.JSON(t, "testdata/record.json", data)
	again, err := Decode(data)
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestWhatWasHandedOut(t *testing.T) {
	for name, tt := range map[string]struct {
		r    Record
		want bool
	}{
		"prepared":                     {Record{State: Prepared, Devices: []Device{{}}}, true},
		"prepared, without devices":    {Record{State: Prepared}, false},
		"being prepared":               {Record{State: Preparing, Devices: []Device{{}}}, false},
		"being prepared once more":     {Record{State: Preparing, Devices: []Device{{}, {HandedOut: true}}}, true},
		"released, but not cleaned up": {Record{State: Preparing, Released: true, Devices: []Device{{HandedOut: true}}}, false},
	} {
		assert.Equal(t, tt.want, tt.r.HandedOut(), name)
	}
}

func TestMostMemory(t *testing.T) {
	assert.EqualValues(t, 7, Device{MemoryLimit: 5, Amount: &gpu.Amount{Memory: 7}}.MemoryMost())
	assert.EqualValues(t, 9, Device{MemoryLimit: 9, Amount: &gpu.Amount{Memory: 7}}.MemoryMost())
}

func TestNamesInRecords(t *testing.T) {
	left := LeftoverUID("uid-1", "gpu-0000-01-00-0")
	assert.NotEqual(t, left, LeftoverUID("uid-1", "gpu-0000-02-00-0"))
	assert.EqualValues(t, "uid-1", ClaimOf(left))
	assert.EqualValues(t, "uid-1", ClaimOf("uid-1"))
	for want, d := range map[string]Device{"gpu": {Name: "gpu"}, "gpu-12345678": {Name: "gpu", ShareID: "123456789"}, "gpu-12": {Name: "gpu", ShareID: "12"}} {
		assert.Equal(t, want, d.Key())
	}
	assert.Equal(t, []string{"a", "b"}, Record{Pods: []Pod{{Name: "a"}, {UID: "of a group"}, {Name: "b"}}}.PodNames())
}
