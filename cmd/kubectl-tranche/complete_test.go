package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namesServer is an API server that has names, by path.
func namesServer(t *testing.T, names map[string][]string) *server {
	return serverThat(t, func(_ *server, w http.ResponseWriter, r *http.Request) {
		all, known := names[r.URL.Path]
		if !known {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		for _, name := range all {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			})
		}
		send(w, list)
	})
}

func TestCompletion(t *testing.T) {
	const ours, core = "/apis/tranche.dev/v1beta1/", "/api/v1/"
	full := map[string][]string{
		ours + "gpunodes": {"node-a", "node-b"}, ours + "partitionprofiles": {"balanced", "whole"}, ours + "partitionplans": {"canary"},
		core + "nodes": {"control-plane", "node-a", "node-b"}, core + "namespaces/team/pods": {"train-0", "train-1"},
		"/apis/batch/v1/namespaces/team/jobs": {"nightly"}, "/apis/apps/v1/namespaces/team/statefulsets": {"db"},
		"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims": {"gpu"},
	}
	few := map[string][]string{core + "nodes": {"control-plane", "node-a"}, core + "namespaces/team/pods": {}}
	const noFiles, noSpace = ":4", ":6"
	for _, c := range []struct {
		names map[string][]string
		args  string
		want  string
	}{
		{full, "node |", "node-a node-b " + noFiles},
		{full, "node node-b|", "node-b " + noFiles},
		{full, "node node-a |", "node-b " + noFiles},
		{full, "set-profile node-b|", "node-b " + noFiles},
		{full, "set-profile node-a |", "balanced whole " + noFiles},
		{full, "set-profile node-a whole |", noFiles},
		{full, "switches |", "node-a node-b " + noFiles},
		{full, "defrag --namespace team |", "train-0 train-1 " + noFiles},
		{full, "rollout status |", "canary " + noFiles},
		{full, "rollout undo c|", "canary " + noFiles},
		{full, "--node |", "node-a node-b " + noFiles},
		{few, "--node |", "control-plane node-a " + noFiles},
		{few, "node |", noFiles},
		{full, "-n team why t|", "train-0 train-1 " + noFiles},
		{full, "-n team why job/|", "job/nightly " + noFiles},
		{full, "-n team why resourceclaims/g|", "resourceclaims/gpu " + noFiles},
		{full, "-n team why sts/|", "sts/db " + noFiles},
		{full, "-n team why pod tr|", "train-0 train-1 " + noFiles},
		{full, "-n team why jobs |", "nightly " + noFiles},
		{full, "-n team why job nightly |", noFiles},
		{full, "-n team why node/|", noFiles},
		{full, "-n team why train-0 |", "train-1 " + noFiles},
		{few, "-n team why jo|", "job/ jobset/ " + noSpace},
		{full, "top |", "nodes gpus pods " + noFiles},
		{full, "top --sort-by |", "name memory compute power " + noFiles},
		{full, "-o |", "wide json yaml name " + noFiles},
		{full, "version -o |", "json yaml " + noFiles},
		{full, "uninstall |", noFiles},
	} {
		s := namesServer(t, c.names)
		typed := strings.Split(strings.TrimSuffix(c.args, "|"), " ")
		args := append([]string{"__complete", "--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one"}, typed...)
		out, err := run(t, args...)
		require.NoError(t, err, c.args)
		proposed, _, _ := strings.Cut(out, "\nCompletion ended")
		assert.Equal(t, c.want, strings.Join(strings.Fields(proposed), " "), c.args)
		for _, asked := range s.asked {
			assert.Contains(t, asked, "limit=500")
		}
	}
	out, err := run(t, "__complete", "templates", "--inventory", "h100")
	require.NoError(t, err)
	assert.Contains(t, out, "h100x8\n")
	out, err = run(t, "__complete", "--kubeconfig", "/does/not/exist", "switches", "")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, ":4\n"), out)
}

// A server that hangs is not waited for longer than somebody who pressed a key waits.
func TestCompletionHasADeadline(t *testing.T) {
	assert.LessOrEqual(t, completionDeadline.Seconds(), 3.0)
	hang := make(chan struct{})
	s := serverThat(t, func(_ *server, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	out, err := run(t, "__complete", "--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one", "--node", "")
	close(hang)
	s.Close() // it waits for requests
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, ":4\n"), out)
	assert.NotContains(t, strings.Join(s.asked, " "), "/api/v1/nodes", "the time is for all that is asked")
}
