package hook

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	uid    = "3f0f0d6e-52f4-4c4b-9a0e-6d3b0f2f0a11"
	device = "gpu-0000-01-00-0-memory-share-3f0f0d6e_A.Zz9"
	group  = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f0f0d6e_52f4_4c4b_9a0e_6d3b0f2f0a11.slice/cri-containerd-a.scope"
)

func TestParseRequest(t *testing.T) {
	for name, tt := range map[string]struct{ text, err string }{
		"as sent":          {`{"claim":"` + uid + `","device":"` + device + `","group":"` + group + `"}`, ""},
		"no JSON":          {`claim`, "read the request"},
		"nothing":          {``, "read the request"},
		"another key":      {`{"claim":"a","device":"b","group":"/c","bytes":1}`, "unknown field"},
		"no claim":         {`{"device":"b","group":"/c"}`, `"" is not the UID of a claim`},
		"a path as claim":  {`{"claim":"../a","device":"b","group":"/c"}`, "is not the UID of a claim"},
		"a long claim":     {`{"claim":"` + strings.Repeat("a", 257) + `","device":"b","group":"/c"}`, "is not the UID of a claim"},
		"no device":        {`{"claim":"a","group":"/c"}`, "is not the name of a device"},
		"no group":         {`{"claim":"a","device":"b"}`, "is not the control group of a container"},
		"the root":         {`{"claim":"a","device":"b","group":"/"}`, "is not the control group of a container"},
		"a relative group": {`{"claim":"a","device":"b","group":"c"}`, "is not the control group of a container"},
		"a group above":    {`{"claim":"a","device":"b","group":"/../c"}`, "is not the control group of a container"},
		"a zero byte":      {`{"claim":"a","device":"b","group":"/c\u0000"}`, "is not the control group of a container"},
		"too much":         {strings.Repeat(" ", MaxRequest+1), "longer than 8192 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseRequest(strings.NewReader(tt.text))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, Request{Claim: uid, Device: device, Group: group}, r)
		})
	}
	for _, c := range "/:@[`{ä" {
		_, err := ParseRequest(strings.NewReader(`{"claim":"a","device":"` + string(c) + `b","group":"/c"}`))
		assert.ErrorContains(t, err, "is not the name of a device", "%c", c)
	}
	_, err := ParseRequest(iotest.ErrReader(io.ErrUnexpectedEOF))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// Whatever arrives, a request is refused or is one that the program sends.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"claim":"a","device":"b","group":"/c"}`))
	f.Add([]byte(`{"claim":"a","device":"b","group":"/c/../../d"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRequest(bytes.NewReader(data))
		if err != nil {
			return
		}
		require.NoError(t, r.check())
		again, err := json.Marshal(r)
		require.NoError(t, err)
		same, err := ParseRequest(bytes.NewReader(again))
		require.NoError(t, err)
		assert.Equal(t, r, same)
		assert.NotContains(t, r.Group+"/", "/../")
	})
}

func TestProcessOf(t *testing.T) {
	for text, want := range map[string]int{
		`{"ociVersion":"1.2.0","id":"a","status":"created","pid":4711,"bundle":"/run/b","annotations":{"a":"b"}}`: 4711,
		`{"pid":2}`: 2, `{"pid":1}`: 0, `{}`: 0, `{"pid":-4}`: 0, `{"pid":"4"}`: 0, ``: 0, `[]`: 0,
	} {
		pid, err := processOf(strings.NewReader(text))
		assert.Equal(t, want, pid, text)
		assert.Equal(t, want == 0, err != nil, text)
	}
}

func TestGroupIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::" + group + "\n":                      group,
		"4:memory:/a\n1:name=systemd:/b\n0::/c\n": "/c",
		"0::/with:colon":                          "/with:colon",
		"4:memory:/a\n":                           "",
		"":                                        "",
		"10::/a\n":                                "",
		"1:name=0:::/a\n0::/kubepods/pod1/c (deleted)": "/kubepods/pod1/c (deleted)",
	} {
		got, err := groupIn([]byte(text))
		assert.Equal(t, want, got, text)
		assert.Equal(t, want == "", err != nil, text)
	}
}
