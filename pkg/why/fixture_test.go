package why_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/pending"
)

func newWorld(t testing.TB) *pending.World { return pending.New(t, "../..") }

// requireText compares the text of an explanation, and what only its JSON form has, with a golden
// file. Package fit compares the nodes.
func requireText(t *testing.T, name string, e *why.Explanation) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, picture.Screen{Width: 80}.Draw(&got, func(p *picture.Page) { picture.DrawExplanation(p, e, false) }))
	rest := *e
	rest.Summary, rest.Nodes, rest.Remedies = "", nil, nil
	golden.Equal(t, filepath.Join("testdata", name+".txt"), got.String()+"\n---\n"+yamlOf(t, rest))
}

func yamlOf(t *testing.T, o any) string {
	t.Helper()
	out, err := yaml.Marshal(o)
	require.NoError(t, err)
	return string(out)
}
