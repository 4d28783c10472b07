package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		args string
		want target
		err  string
	}{
		{"train-7", target{"Pod", "", "train-7"}, ""},
		{"pod/train-7", target{"Pod", "", "train-7"}, ""},
		{"pods/train-7", target{"Pod", "", "train-7"}, ""},
		{"po/train-7", target{"Pod", "", "train-7"}, ""},
		{"job nightly", target{"Job", "", "nightly"}, ""},
		{"jobs.batch/nightly", target{"Job", "", "nightly"}, ""},
		{"jobs.v1.batch/nightly", target{"Job", "", "nightly"}, ""},
		{"Deploy/web", target{"Deployment", "", "web"}, ""},
		{"deployment.apps/web", target{"Deployment", "", "web"}, ""},
		{"sts/db", target{"StatefulSet", "", "db"}, ""},
		{"statefulsets/db", target{"StatefulSet", "", "db"}, ""},
		{"rs/web-1", target{"ReplicaSet", "", "web-1"}, ""},
		{"jobset/big", target{"JobSet", "", "big"}, ""},
		{"jobsets.jobset.x-k8s.io/big", target{"JobSet", "", "big"}, ""},
		{"resourceclaims/gpu", target{"ResourceClaim", "", "gpu"}, ""},
		{"resourceclaim.resource.k8s.io/gpu", target{"ResourceClaim", "", "gpu"}, ""},
		{"", target{}, errNoTarget.Error()},
		{"job/", target{}, errNoTarget.Error()},
		{"job/a/b", target{}, errNoTarget.Error()},
		{"service/web", target{}, `"service" cannot be explained: name a pod, job, deployment, statefulset, replicaset, jobset or resourceclaim`},
		{"jobs.example.com/nightly", target{}, `"jobs.example.com" cannot be explained`},
	} {
		got, err := parseTargets(strings.Fields(test.args))
		if test.err != "" {
			require.ErrorContains(t, err, test.err, test.args)
			continue
		}
		require.NoError(t, err, test.args)
		assert.Equal(t, []target{test.want}, got, test.args)
	}
	several, err := parseTargets([]string{"a", "job/b"})
	require.NoError(t, err)
	assert.Equal(t, []target{{"Pod", "", "a"}, {"Job", "", "b"}}, several)
	several, err = parseTargets([]string{"job", "a", "b"})
	require.NoError(t, err)
	assert.Equal(t, []target{{"Job", "", "a"}, {"Job", "", "b"}}, several)
}

func TestTargetsOfAFile(t *testing.T) {
	const text = `apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
# Only a comment.
---
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: team-b}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: p}}
  - {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}}
`
	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	got, err := targetsIn(nil, file)
	require.NoError(t, err)
	assert.Equal(t, []target{{"Job", "team-b", "nightly"}, {"Pod", "", "p"}, {"StatefulSet", "", "db"}}, got)

	got, err = targetsIn(strings.NewReader(`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "big"}}`), "-")
	require.NoError(t, err)
	assert.Equal(t, []target{{"JobSet", "", "big"}}, got)

	_, err = targetsIn(strings.NewReader(`kind: Service`), "-")
	require.ErrorContains(t, err, "- has no pod, job")
	_, err = targetsIn(strings.NewReader(`a: b: c`), "-")
	require.ErrorContains(t, err, "read -: ")
	_, err = targetsIn(nil, filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "no such file")

	_, err = targetsOf([]string{"p"}, nil, []string{file})
	require.EqualError(t, err, "-f FILE takes no other objects")
}

func FuzzTargets(f *testing.F) {
	for _, seed := range []string{"kind: Job", "{", "---\n---", "apiVersion: v1\nkind: List\nitems: [{}, 3]", "- a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := targetsIn(strings.NewReader(text), "-")
		if err == nil {
			require.NotEmpty(t, all)
		}
		for _, o := range all {
			assert.NotEmpty(t, o.name)
		}
	})
}
