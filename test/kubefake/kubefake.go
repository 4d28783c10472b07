// Package kubefake makes client-go's fake client fit for informers: watches miss no deletion,
// and send copies.
package kubefake

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/test/clientfake"
)

// New returns a fake client that has these objects.
func New(objects ...runtime.Object) *fake.Clientset {
	c := fake.NewClientset(objects...)
	clientfake.Serve(&c.Fake, c.Tracker())
	return c
}
