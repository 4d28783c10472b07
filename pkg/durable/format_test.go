package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// book is a kind of file, page an entry of it.
type book struct {
	Title string `json:"title,omitempty"`
	Pages []page `json:"pages,omitempty"`
	bound bool
}

type size struct {
	Width int `json:"width,omitempty"`
}

type page struct {
	size

	Text    string `json:"text,omitempty"`
	Plain   int
	Skipped int `json:"-"`
	unknown Unknown
}

func (p *page) UnmarshalJSON(data []byte) (err error) {
	type plain page
	p.unknown, err = Unmarshal(data, (*plain)(p))
	return err
}

func (p page) MarshalJSON() ([]byte, error) {
	type plain page
	return Marshal(plain(p), p.unknown)
}

func TestFormat(t *testing.T) {
	format := Format{Version: 2, MinReader: 1}
	data, err := format.Encode(book{Title: "a", Pages: []page{{Text: "b", size: size{3}, Plain: 4}}}, nil)
	require.NoError(t, err)
	assert.Equal(t, `{"version":2,"minReader":1,"title":"a","pages":[{"width":3,"text":"b","Plain":4}]}`, string(data))
	var got book
	unknown, err := format.Decode(data, &got)
	require.NoError(t, err)
	assert.Nil(t, unknown)
	assert.Equal(t, book{Title: "a", Pages: []page{{Text: "b", size: size{3}, Plain: 4}}}, got)

	data, err = format.Encode(struct{}{}, nil)
	require.NoError(t, err)
	assert.Equal(t, `{"version":2,"minReader":1}`, string(data))
	for _, not := range []any{1, []int{}, nil} {
		_, err = format.Encode(not, nil)
		require.ErrorContains(t, err, "a file must be a JSON object")
	}
}

// What a newer version wrote beside what this one knows is still there when it is written again.
func TestUnknownKeysAreKept(t *testing.T) {
	format := Format{Version: 1, MinReader: 1}
	var got book
	unknown, err := format.Decode([]byte(`{"version":3,"minReader":1,"TITLE":"a","bound":true,"isbn":[1, 2],"pages":[{"text":"b","Plain":1,"width":2,"color":"red","Skipped":9},{}]}`), &got)
	require.NoError(t, err)
	assert.Equal(t, "a", got.Title)
	assert.False(t, got.bound)
	got.Title, got.Pages[0].Text = "c", "d"
	data, err := format.Encode(got, unknown)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"minReader":1,"title":"c","bound":true,"isbn":[1,2],"pages":[{"text":"d","Plain":1,"width":2,"color":"red","Skipped":9},{"Plain":0}]}`, string(data))
}

func TestDecodeRefuses(t *testing.T) {
	format := Format{Version: 2, MinReader: 2}
	for data, message := range map[string]string{
		``:                              "no valid JSON",
		`[]`:                            "no valid JSON",
		`null`:                          "version is 0, minReader 0: neither can be less than 1",
		`{"title":"a"}`:                 "version is 0",
		`{"version":1,"minReader":-1}`:  "minReader -1",
		`{"version":"1"}`:               "no valid JSON",
		`{"version":1,"title":1}`:       "cannot unmarshal number",
		`{"version":1,"pages":[[]]}`:    "cannot unmarshal array",
		`{"version":3}`:                 "it has version 3 and needs a plugin that reads version 3, this one reads 2: run the newer version of Tranche on this node again",
		`{"version":9,"minReader":3}`:   "it has version 9 and needs a plugin that reads version 3",
		`{"version":1,"minReader":3}`:   "needs a plugin that reads version 3",
		`{"version":9,"minReader":2}`:   "",
		`{"version":1}`:                 "",
		`{"version":1,"pages":[null]}`:  "",
		`{"version":1,"pages":"other"}`: "cannot unmarshal string",
	} {
		var into book
		_, err := format.Decode([]byte(data), &into)
		if message == "" {
			require.NoError(t, err, data)
			continue
		}
		require.ErrorContains(t, err, message, data)
		assert.Equal(t, strings.Contains(message, "needs a plugin"), errors.As(err, new(*NewerError)), data)
	}
}

// A file of a newer version is neither used nor replaced, even if it comes while this version runs.
func TestStateOfANewerVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s := State[book]{Path: path, Format: Format{Version: 1, MinReader: 1}}
	_, err := s.Read()
	require.NoError(t, err)
	require.NoError(t, s.Write(book{Title: "a"}))
	const newer = `{"version":2,"minReader":2,"title":["b"]}`
	require.NoError(t, os.WriteFile(path, []byte(newer), 0o600))
	require.ErrorContains(t, s.Write(book{Title: "c"}), "is not replaced: it has version 2 and needs a plugin that reads version 2")
	again := State[book]{Path: path, Format: s.Format}
	_, err = again.Read()
	require.ErrorContains(t, err, "run the newer version of Tranche on this node again")
	assert.False(t, again.Unread(), "it is not read again and again")
	require.Error(t, again.Write(book{}))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, newer, string(data))

	require.NoError(t, os.WriteFile(path, []byte(`{"version":2,"minReader":1,"title":"b","shelf":4}`), 0o600))
	require.NoError(t, s.Write(book{Title: "c"}))
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"minReader":1,"title":"c","shelf":4}`, string(data))
}

// Whatever is in a file, it is refused, or nothing of it is lost when it is written again.
func FuzzFormat(f *testing.F) {
	f.Add([]byte(`{"version":1,"pages":[{"text":"a","more":{}}],"more":1}`))
	f.Add([]byte(`{"version":1,"VERSION":1,"Pages":null}`))
	format := Format{Version: 1, MinReader: 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in, out book
		unknown, err := format.Decode(data, &in)
		if err != nil {
			return
		}
		again, err := format.Encode(in, unknown)
		require.NoError(t, err)
		kept, err := format.Decode(again, &out)
		require.NoError(t, err)
		require.Len(t, kept, len(unknown))
		twice, err := format.Encode(out, kept)
		require.NoError(t, err)
		require.Equal(t, string(again), string(twice))
	})
}

type Box struct{ Width int }

type Inner struct{ Depth int }

// The name of an embedded struct is a key only where it has a tag.
func TestKeysOfEmbeddedStructs(t *testing.T) {
	var into struct {
		Box
		Inner `json:"inner"`
	}
	unknown, err := Unmarshal([]byte(`{"Width": 1, "inner": {"Depth": 2}, "Box": 3}`), &into)
	require.NoError(t, err)
	assert.Equal(t, Unknown{"Box": []byte("3")}, unknown)
	assert.Equal(t, 1, into.Width)
	assert.Equal(t, 2, into.Depth)
}

func TestWhatCannotBeEncoded(t *testing.T) {
	format, more := Format{Version: 1, MinReader: 1}, Unknown{"more": []byte("1")}
	for name, unknown := range map[string]Unknown{"alone": nil, "with unknown keys": more} {
		_, err := format.Encode(struct{ C chan int }{}, unknown)
		require.ErrorContains(t, err, "unsupported type", name)
	}
	_, err := format.Encode(1, more)
	require.ErrorContains(t, err, "cannot unmarshal number")
	_, err = Unmarshal([]byte("[1]"), &[]int{})
	require.ErrorContains(t, err, "cannot unmarshal array")

	path := filepath.Join(t.TempDir(), "state.json")
	unwritable := State[struct{ C chan int }]{Path: path, Format: format}
	_, err = unwritable.Read()
	require.NoError(t, err)
	require.ErrorContains(t, unwritable.Write(struct{ C chan int }{}), "unsupported type")
	assert.NoFileExists(t, path)
	s := State[book]{Path: path, Format: format}
	_, err = s.Read()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(path, 0o700))
	require.ErrorContains(t, s.Write(book{}), path+" is not replaced: ")
}
