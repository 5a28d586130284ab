# Sidekiq does its jobs: at once, in bulk, later, and again after an error; its counts are right.
require "sidekiq"
require "sidekiq/api"
require "sidekiq/launcher"

HOST, PORT = ARGV
url = "redis://#{HOST}:#{PORT}/0"
Sidekiq.configure_client { |config| config.redis = { url: url } }
Sidekiq.configure_server { |config| config.redis = { url: url } }
Sidekiq.logger.level = Logger::FATAL

class Plain
  include Sidekiq::Worker

  def perform(n)
    Sidekiq.redis { |redis| redis.sadd("done", n.to_s) }
  end
end

class Flaky
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 0 }

  def perform
    tries = Sidekiq.redis { |redis| redis.incr("tries") }
    raise "once" if tries.to_i == 1
  end
end

10.times { |n| Plain.perform_async(n) }
Plain.perform_bulk((10...30).map { |n| [n] })
Plain.perform_in(1, 30)
Flaky.perform_async
raise "#{Sidekiq::Queue.new.size} are queued" unless Sidekiq::Queue.new.size == 31

options = Sidekiq.options.merge(queues: ["default"], concurrency: 4, poll_interval_average: 1)
launcher = Sidekiq::Launcher.new(options)
launcher.run
until_time = Time.now + 40
done = tries = 0
while Time.now < until_time && (done < 31 || tries < 2)
  sleep 0.1
  done, tries = Sidekiq.redis { |redis| [redis.scard("done").to_i, redis.get("tries").to_i] }
end
launcher.stop
stats = Sidekiq::Stats.new
unless done == 31 && tries == 2 && stats.enqueued.zero? && stats.retry_size.zero? && stats.processed == 33 && stats.failed == 1
  raise "#{done} were done, #{tries} tries, #{stats.processed} processed, #{stats.failed} failed"
end
puts "ok"
