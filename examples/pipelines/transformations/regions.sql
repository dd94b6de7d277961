CREATE MATERIALIZED VIEW regions AS
SELECT region, sum(orders) AS orders, sum(euros) AS euros FROM totals GROUP BY region
