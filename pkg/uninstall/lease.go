package uninstall

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// deleteLease deletes the lease of the controller, which has ended, or was there once.
// Nobody else does: it was made by a pod, not by the chart.
func (c *Config) deleteLease(ctx context.Context) error {
	err := c.Client.CoordinationV1().Leases(c.Namespace).Delete(ctx, v1alpha1.ControllerName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s/%s of the controller: %w", c.Namespace, v1alpha1.ControllerName, err)
	}
	return nil
}
