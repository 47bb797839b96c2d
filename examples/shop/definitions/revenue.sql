-- Computed again whenever orders_with_names has changed.
CREATE MATERIALIZED VIEW revenue AS
  SELECT name, currency, sum(amount) AS revenue, count(*) AS orders
  FROM orders_with_names
  GROUP BY name, currency;
