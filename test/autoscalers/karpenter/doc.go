// Package karpenter turns templates of ResourceSlices into what Karpenter's cloud
// providers return for an instance type. Its tests have Karpenter itself decide about nodes
// with our devices.
package karpenter
