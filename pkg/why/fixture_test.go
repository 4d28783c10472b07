package why_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/pending"
)

func newWorld(t testing.TB) *pending.World { return pending.New(t, "../..") }

// requireText compares the text of an explanation with a golden file.
func requireText(t *testing.T, name string, e *why.Explanation) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, picture.Screen{Width: 80}.Draw(&got, func(p *picture.Page) { picture.DrawExplanation(p, e, false) }))
	golden.Equal(t, filepath.Join("testdata", name+".txt"), got.String())
}
