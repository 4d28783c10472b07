package helm_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusal is a mistake in values.
type refusal struct {
	// set is as for helm --set, with keys of one object.
	set string
	// says are parts of one line of what helm says.
	says []string
}

// requireRefused renders the chart with all mistakes, in as few runs of helm as possible: a run says
// everything that is wrong. Mistakes in one object are not made in the same run, since one may
// hide another.
func requireRefused(t *testing.T, all map[string]refusal) {
	t.Helper()
	type run struct{ objects, names, args []string }
	var runs []*run
	for _, name := range slices.Sorted(maps.Keys(all)) {
		object := objectOf(all[name].set)
		i := slices.IndexFunc(runs, func(other *run) bool {
			return !slices.ContainsFunc(other.objects, func(o string) bool { return strings.HasPrefix(o, object) || strings.HasPrefix(object, o) })
		})
		if i < 0 {
			i, runs = len(runs), append(runs, &run{args: []string{"template", "tranche", chart, "--kube-version", kubeVersion}})
		}
		with := runs[i]
		with.objects, with.names, with.args = append(with.objects, object), append(with.names, name), append(with.args, "--set", all[name].set)
	}
	for _, with := range runs {
		_, errOut, err := helm(t, with.args...)
		require.Error(t, err)
		lines := strings.Split(errOut, "\n")
		for _, name := range with.names {
			t.Run(name, func(t *testing.T) {
				require.True(t, slices.ContainsFunc(lines, func(line string) bool {
					return !slices.ContainsFunc(all[name].says, func(part string) bool { return !strings.Contains(line, part) })
				}), "no line has %q:\n%s", all[name].says, errOut)
			})
		}
	}
}

// objectOf is the path of the object that is set, of two keys at most, with a dot at its end.
func objectOf(set string) string {
	path, _, _ := strings.Cut(set, "=")
	keys := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
	return strings.Join(keys[:min(2, len(keys))], ".") + "."
}
