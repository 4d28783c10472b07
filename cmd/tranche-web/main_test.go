package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/cert"
)

func TestBadFlags(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for name, test := range map[string]struct {
		args    []string
		message string
	}{
		"no namespace":  {nil, "--system-namespace is not set"},
		"an argument":   {[]string{"node-a"}, `unknown command "node-a"`},
		"no kubeconfig": {[]string{"--system-namespace=x", "--kubeconfig=/does/not/exist"}, "find out how to reach the API server"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.SetArgs(append([]string{}, test.args...))
			cmd.SetOut(io.Discard)
			require.ErrorContains(t, cmd.ExecuteContext(t.Context()), test.message)
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "tranche-system")
	var c config
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.addFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
	assert.Equal(t, config{address: ":8443", httpAddress: ":8080", namespace: "tranche-system"}, c)
}

func TestCertificate(t *testing.T) {
	group, ctx := errgroup.WithContext(t.Context())
	own, err := certificate(ctx, group, "")
	require.NoError(t, err)
	require.Len(t, own.Certificates, 1)
	assert.Equal(t, []string{"tranche-web", "localhost"}, own.Certificates[0].Leaf.DNSNames)

	dir := t.TempDir()
	_, err = certificate(ctx, group, dir)
	require.ErrorContains(t, err, "read the certificate of the web page")
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("gpus.example", nil, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certPEM, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), keyPEM, 0o600))
	given, err := certificate(ctx, group, dir)
	require.NoError(t, err)
	found, err := given.GetCertificate(nil)
	require.NoError(t, err)
	assert.Contains(t, found.Leaf.DNSNames, "gpus.example")
}
